//! Looks at the place that deliveries come from, at the start and every few minutes: what was right when the worker
//! started may have been changed since by somebody else.

use crate::engine::progress::Progress;
use crate::source::{Finding, Source, Weight};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Five minutes: a handful of requests an hour, and nobody waits longer to be told.
const CHECK_EVERY: Duration = Duration::from_secs(5 * 60);

/// While nothing can arrive, so that a worker whose source was mended is ready soon after.
const CHECK_AGAIN: Duration = Duration::from_secs(30);

/// The longest that a check may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Checks {
    source: Arc<dyn Source>,
    progress: Arc<Progress>,
    /// What stood at the last check.
    found: BTreeMap<&'static str, Finding>,
}

impl Checks {
    pub(super) fn new(source: Arc<dyn Source>, progress: Arc<Progress>) -> Self {
        Self { source, progress, found: BTreeMap::new() }
    }

    /// Checks until it is dropped. A check that cannot be made changes nothing: whether the source answers is asked for
    /// elsewhere.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            match tokio::time::timeout(ANSWER_WITHIN, self.source.check()).await {
                Ok(Ok(findings)) => self.tell(findings),
                Ok(Err(error)) => tracing::debug!("the source could not be looked at: {error}"),
                Err(_) => tracing::debug!("the source could not be looked at within {} s", ANSWER_WITHIN.as_secs()),
            }
            let blocked = self.found.values().any(|finding| finding.weight == Weight::NothingArrives);
            tokio::time::sleep(if blocked { CHECK_AGAIN } else { CHECK_EVERY }).await;
        }
    }

    /// What keeps everything away stands on `/readyz`; advice is logged when it is new.
    fn tell(&mut self, findings: Vec<Finding>) {
        let before = std::mem::take(&mut self.found);
        self.found = findings.into_iter().map(|finding| (finding.name, finding)).collect();
        for (name, finding) in &self.found {
            match finding.weight {
                Weight::NothingArrives => self.progress.set_finding(name, Some(finding.told.clone())),
                Weight::Advice if before.get(name) != Some(finding) => tracing::warn!(what = name, "{}", finding.told),
                Weight::Advice => {}
            }
        }
        for (name, finding) in &before {
            let over = self.found.get(name).is_none_or(|now| now.weight != finding.weight);
            match finding.weight {
                Weight::NothingArrives if over => self.progress.set_finding(name, None),
                Weight::Advice if over => tracing::info!("over: {name}"),
                _ => {}
            }
        }
    }
}
