//! A store that fails as told, before or after it applies. For faults alone; what it wraps is a real adapter.

use async_trait::async_trait;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{
    Applied, Attempt, Audit, Counts, Depth, ErrorClass, Limits, Listing, PageSize, QuarantinePage, Quarantined, Repair,
    Repaired, Settings, Store, StoreError, Tally,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to one call of `apply`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fault {
    /// How long the call takes before anything happens.
    pub(crate) delay: Duration,
    /// The failure that is returned, if any.
    pub(crate) error: Option<ErrorClass>,
    /// Whether the batch is applied before the failure is returned.
    pub(crate) applies: bool,
}

impl Fault {
    pub(crate) fn before(class: ErrorClass) -> Self {
        Self { error: Some(class), ..Self::default() }
    }

    pub(crate) fn after(class: ErrorClass) -> Self {
        Self { error: Some(class), applies: true, ..Self::default() }
    }

    pub(crate) fn slow(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }
}

type Script = Box<dyn FnMut(&Batch, Attempt) -> Fault + Send>;
type QuarantineScript = Box<dyn FnMut(&[Quarantined]) -> Fault + Send>;
type Afterwards = Box<dyn Fn() + Send>;

/// Wraps a store; the script decides about every call.
pub(crate) struct Faulty<S: ?Sized> {
    pub(crate) inner: Arc<S>,
    script: Mutex<Script>,
    quarantine_script: Mutex<QuarantineScript>,
    reads_take: Mutex<Duration>,
    /// Called when a batch is applied, and when poison is quarantined, before anybody hears of it.
    afterwards: Mutex<Option<(Afterwards, Afterwards)>>,
}

impl<S: Store + ?Sized> Faulty<S> {
    pub(crate) fn new(inner: Arc<S>, script: impl FnMut(&Batch, Attempt) -> Fault + Send + 'static) -> Arc<Self> {
        let quarantine_script: QuarantineScript = Box::new(|_| Fault::default());
        Arc::new(Self {
            inner,
            script: Mutex::new(Box::new(script)),
            quarantine_script: Mutex::new(quarantine_script),
            reads_take: Mutex::default(),
            afterwards: Mutex::default(),
        })
    }

    /// The same with reads that take so long.
    pub(crate) fn reading_in(self: Arc<Self>, reads_take: Duration) -> Arc<Self> {
        *self.reads_take.lock().unwrap() = reads_take;
        self
    }

    /// The same with a script for the quarantine.
    pub(crate) fn quarantining(
        self: Arc<Self>,
        script: impl FnMut(&[Quarantined]) -> Fault + Send + 'static,
    ) -> Arc<Self> {
        *self.quarantine_script.lock().unwrap() = Box::new(script);
        self
    }

    /// The same with something to do when a batch is applied and when poison is quarantined, before anybody hears of it.
    pub(crate) fn afterwards(
        self: Arc<Self>,
        applied: impl Fn() + Send + 'static,
        quarantined: impl Fn() + Send + 'static,
    ) -> Arc<Self> {
        *self.afterwards.lock().unwrap() = Some((Box::new(applied), Box::new(quarantined)));
        self
    }
}

#[async_trait]
impl<S: Store + ?Sized> Counts for Faulty<S> {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.inner.tally(post, depth).await
    }
    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.posts(listing, after, limit).await
    }
    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.inner.quarantined(after, size).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Repair for Faulty<S> {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.inner.audit(post).await
    }
    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.inner.repair(post, seen).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Faulty<S> {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        let fault = (self.script.lock().unwrap())(batch, attempt);
        if !fault.delay.is_zero() {
            tokio::time::sleep(fault.delay).await;
        }
        match fault.error {
            None => {
                let applied = self.inner.apply(batch, attempt).await?;
                if let Some((afterwards, _)) = &*self.afterwards.lock().unwrap() {
                    afterwards();
                }
                Ok(applied)
            }
            Some(class) => {
                if fault.applies {
                    self.inner.apply(batch, attempt).await?;
                }
                Err(StoreError::new(class, "a fault of the test"))
            }
        }
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let fault = (self.quarantine_script.lock().unwrap())(poison);
        if !fault.delay.is_zero() {
            tokio::time::sleep(fault.delay).await;
        }
        match fault.error {
            None => {
                self.inner.quarantine(poison).await?;
                if let Some((_, afterwards)) = &*self.afterwards.lock().unwrap() {
                    afterwards();
                }
                Ok(())
            }
            Some(class) => Err(StoreError::new(class, "a fault of the test")),
        }
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.inner.find_quarantined(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.inner.discard(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        let reads_take = *self.reads_take.lock().unwrap();
        tokio::time::sleep(reads_take).await;
        self.inner.membership(post, user).await
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        self.inner.agree(settings).await
    }

    /// A probe meets what a batch without likes would.
    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        let fault = (self.script.lock().unwrap())(&Batch::new(key, Vec::new()), Attempt::first(0));
        if !fault.delay.is_zero() {
            tokio::time::sleep(fault.delay).await;
        }
        match fault.error {
            None => self.inner.probe(key).await,
            Some(class) => Err(StoreError::new(class, "a fault of the test")),
        }
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}
