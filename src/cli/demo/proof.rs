//! What the load knows from its seed, beside what the store counts.

use super::worker::Kill;
use hotcount::engine::progress::Counted;
use hotcount::lab::firestore_model::Assumptions;
use hotcount::lab::load::Totals;
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::json;

/// The hottest posts have a row each.
const HOTTEST: usize = 5;

/// Posts that differ have a row each, up to so many.
const DIFFERING: usize = 100;

/// One post.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) post: String,
    /// Messages about it, duplicates included.
    pub(super) sent: u64,
    /// How fast they came.
    pub(super) arrivals_per_s: f64,
    /// What it must count.
    pub(super) expected: u64,
    /// The sum of its shards.
    pub(super) counted: i64,
    /// How many members like it.
    pub(super) members: u64,
    pub(super) drift: i64,
    /// Messages that one guarded document would have handled in the time of the load.
    pub(super) guarded: u64,
}

impl Row {
    fn differs(&self) -> bool {
        self.drift != 0 || i64::try_from(self.expected) != Ok(self.counted)
    }

    fn text(&self) -> String {
        let Self { post, sent, arrivals_per_s, expected, counted, members, drift, guarded } = self;
        let counted = if *counted < 0 { counted.to_string() } else { human(counted.unsigned_abs()) };
        format!(
            "{post:<14} {:>12} {:>8} {:>12} {counted:>12} {:>12} {drift:>6} {:>9}{}",
            human(*sent),
            human(arrivals_per_s.round() as u64),
            human(*expected),
            human(*members),
            human(*guarded),
            if self.differs() { "  differs" } else { "" }
        )
    }
}

fn human(n: u64) -> String {
    HumanCount(n).to_string()
}

/// Everything that is printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    /// The most sent first.
    pub(super) rows: Vec<Row>,
    pub(super) seed: u64,
    pub(super) totals: Totals,
    pub(super) accepted: u64,
    pub(super) sends_again: u64,
    pub(super) quarantined: u64,
    pub(super) kills: Vec<Kill>,
    pub(super) last_worker: Counted,
    pub(super) took_s: f64,
}

impl Proof {
    /// What is not as it must be, a sentence each. Empty is the proof.
    pub(super) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let mut unless = |right: bool, sentence: String| {
            if !right {
                findings.push(sentence);
            }
        };
        let differing = self.rows.iter().filter(|row| row.differs()).count();
        unless(differing == 0, format!("{differing} of {} posts differ", self.rows.len()));
        let (poison, quarantined) = (self.totals.quarantined(), self.quarantined);
        unless(poison == quarantined, format!("{poison} poison messages were sent, {quarantined} are quarantined"));
        let (sent, accepted) = (self.totals.messages, self.accepted);
        unless(sent == accepted, format!("{sent} messages were sent, {accepted} were accepted"));
        let (Counted { received, left, .. }, ended) = (self.last_worker, self.last_worker.settled());
        unless(
            received == ended && left == 0,
            format!("the last worker received {received} deliveries and settled {ended}"),
        );
        findings
    }

    /// The rows that are shown: the hottest, and those that differ.
    fn shown(&self) -> impl Iterator<Item = &Row> {
        let (hottest, others) = self.rows.split_at(HOTTEST.min(self.rows.len()));
        hottest.iter().chain(others.iter().filter(|row| row.differs()).take(DIFFERING))
    }

    /// All posts together.
    fn total(&self) -> Row {
        let mut total = Row {
            post: format!("all {} posts", self.rows.len()),
            sent: 0,
            arrivals_per_s: 0.0,
            expected: 0,
            counted: 0,
            members: 0,
            drift: 0,
            guarded: 0,
        };
        for row in &self.rows {
            total.sent += row.sent;
            total.arrivals_per_s += row.arrivals_per_s;
            total.expected += row.expected;
            total.counted += row.counted;
            total.members += row.members;
            total.drift += row.drift;
            total.guarded += row.guarded;
        }
        total
    }

    /// What the last column says about the hottest post, and where it is from.
    fn one_document(&self) -> Option<String> {
        let hottest = self.rows.first().filter(|row| row.arrivals_per_s > 0.0 && row.guarded > 0)?;
        let seconds = hottest.sent as f64 / hottest.arrivals_per_s;
        let whole = hottest.sent as f64 / hottest.guarded as f64 * seconds;
        Some(format!(
            "\nguarded: what one document would have counted in those {seconds:.0} s, with a transaction a message that \
             reads a marker and increments the post: {:.2} % of {}, which would be done after {:.1} h. That is a model of \
             Firestore, which assumes:\n{}\n",
            hottest.guarded as f64 / hottest.sent as f64 * 100.0,
            hottest.post,
            whole / 3_600.0,
            Assumptions::default()
        ))
    }

    /// For people.
    pub(super) fn text(&self) -> Vec<String> {
        let mut text = vec![format!(
            "{:<14} {:>12} {:>8} {:>12} {:>12} {:>12} {:>6} {:>9}",
            "post", "sent", "per s", "expected", "counted", "members", "drift", "guarded"
        )];
        text.extend(self.shown().map(Row::text));
        text.push(self.total().text());
        let poison = human(self.totals.quarantined());
        text.push(format!("{:<14} {poison:>12} {:>8} {poison:>12} {:>12}", "poison", "", human(self.quarantined)));
        let Totals { messages, first, redelivered, retried, double_clicked, .. } = self.totals;
        text.push(format!(
            "\n{} messages sent, {} accepted in {:.1} s: {} likes and unlikes, {} redelivered, {} retried by the \
             publisher, {} double clicks, {poison} poison",
            human(messages),
            human(self.accepted),
            self.took_s,
            human(first),
            human(redelivered),
            human(retried),
            human(double_clicked)
        ));
        let kills: Vec<_> = self
            .kills
            .iter()
            .map(|kill| format!("after {} messages (back in {:.2} s)", human(kill.at), kill.back_after_s))
            .collect();
        text.push(format!(
            "worker killed {}; {} requests were sent again",
            kills.join(" and "),
            human(self.sends_again)
        ));
        let Counted { received, applied, folded, duplicates, stale, poison, .. } = self.last_worker;
        text.push(format!(
            "the last worker received {} = {} applied + {} folded + {} duplicates + {} stale + {} poison",
            human(received),
            human(applied),
            human(folded),
            human(duplicates),
            human(stale),
            human(poison)
        ));
        text.extend(self.one_document());
        let findings = self.findings();
        text.push(if findings.is_empty() {
            "exact: every post counts what its events say, and every message is accounted for".to_owned()
        } else {
            format!("NOT EXACT: {}", findings.join("; "))
        });
        text
    }

    /// For scripts.
    pub(super) fn json(&self) -> serde_json::Result<Vec<String>> {
        let mut text = self.shown().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let (total, findings, totals) = (self.total(), self.findings(), &self.totals);
        let summary = json!({
            "exact": findings.is_empty(), "findings": findings, "seed": self.seed, "posts": self.rows.len(),
            "differing": self.rows.iter().filter(|row| row.differs()).count(),
            "expected": total.expected, "counted": total.counted, "members": total.members, "drift": total.drift,
            "messages": totals.messages, "accepted": self.accepted, "likes": totals.first,
            "redelivered": totals.redelivered, "retried": totals.retried, "double_clicked": totals.double_clicked,
            "poison": totals.quarantined(), "quarantined": self.quarantined, "kills": self.kills,
            "sends_again": self.sends_again, "last_worker": self.last_worker, "elapsed_s": self.took_s,
            "messages_per_s": (self.accepted as f64 / self.took_s.max(f64::MIN_POSITIVE)).round(),
        });
        text.push(summary.to_string());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(post: &str, sent: u64, count: u32) -> Row {
        Row {
            post: post.to_owned(),
            sent,
            arrivals_per_s: 10.0,
            expected: u64::from(count),
            counted: i64::from(count),
            members: u64::from(count),
            drift: 0,
            guarded: 2,
        }
    }

    /// Twenty posts that count what they must.
    fn exact() -> Proof {
        let ends = Counted { received: 30, applied: 10, folded: 8, duplicates: 6, stale: 4, poison: 2, left: 0 };
        Proof {
            rows: (0..20).map(|n| row(&format!("post-{n}"), 1_000 - u64::from(n), 50 - n)).collect(),
            totals: Totals { messages: 20_000, first: 19_995, poison: 4, oversized: 1, ..Totals::default() },
            accepted: 20_000,
            quarantined: 5,
            last_worker: ends,
            kills: vec![Kill { at: 7_000, back_after_s: 0.5 }],
            took_s: 1.0,
            ..Proof::default()
        }
    }

    fn json(proof: &Proof) -> Vec<serde_json::Value> {
        let lines = proof.json().expect("JSON");
        lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn exact_counts_are_five_rows_and_a_summary_without_findings() {
        let proof = exact();
        assert_eq!(proof.findings(), Vec::<String>::new());
        let lines = json(&proof);
        assert_eq!(lines.len(), HOTTEST + 1);
        assert_eq!((&lines[0]["post"], &lines[0]["arrivals_per_s"]), (&"post-0".into(), &10.0.into()));
        let summary = &lines[HOTTEST];
        assert_eq!((&summary["exact"], &summary["counted"]), (&true.into(), &(50 * 20 - 190).into()));
        let text = proof.text().join("\n");
        assert!(text.contains("exact: ") && !text.contains("differs"), "{text}");
        assert!(text.contains("0.20 % of post-0, which would be done after 13.9 h"), "{text}");
        assert!(text.contains("killed after 7,000 messages (back in 0.50 s)"), "{text}");
    }

    #[test]
    fn one_like_too_many_or_too_few_is_found_and_its_post_has_a_row() {
        for change in [-1, 1] {
            let mut proof = exact();
            proof.rows[17].counted += change;
            proof.rows[17].members = proof.rows[17].members.saturating_add_signed(change);
            assert_eq!(proof.findings(), ["1 of 20 posts differ"], "shards and members agree, the load does not");
            let lines = json(&proof);
            assert_eq!((&lines[HOTTEST]["post"], lines.len()), (&"post-17".into(), HOTTEST + 2));
            assert_eq!((&lines[HOTTEST + 1]["exact"], &lines[HOTTEST + 1]["differing"]), (&false.into(), &1.into()));
            let text = proof.text();
            assert!(text.iter().any(|line| line.starts_with("post-17 ") && line.ends_with("differs")), "{text:?}");
            assert!(text.last().is_some_and(|line| line.starts_with("NOT EXACT: 1 of 20")), "{text:?}");
        }
    }

    #[test]
    fn two_wrong_posts_that_cancel_out_drift_and_negative_counts_are_found() {
        let mut proof = exact();
        proof.rows[8].counted += 1;
        proof.rows[9].counted -= 1;
        assert_eq!(proof.findings(), ["2 of 20 posts differ"]);
        let mut proof = exact();
        proof.rows[3].drift = 2;
        assert_eq!(proof.findings(), ["1 of 20 posts differ"]);
        let mut proof = exact();
        (proof.rows[19].expected, proof.rows[19].counted) = (0, -1);
        assert_eq!(proof.findings(), ["1 of 20 posts differ"]);
        assert!(proof.text().iter().any(|line| line.starts_with("post-19 ") && line.contains(" -1 ")));
    }

    #[test]
    fn a_message_or_a_delivery_that_is_not_accounted_for_is_found() {
        let finding = |change: fn(&mut Proof)| {
            let mut proof = exact();
            change(&mut proof);
            proof.findings().join("; ")
        };
        assert_eq!(finding(|p| p.quarantined = 4), "5 poison messages were sent, 4 are quarantined");
        assert_eq!(finding(|p| p.accepted -= 1), "20000 messages were sent, 19999 were accepted");
        let unsettled = "the last worker received 30 deliveries and settled 29";
        assert_eq!(finding(|p| (p.last_worker.folded, p.last_worker.left) = (7, 1)), unsettled);
    }
}
