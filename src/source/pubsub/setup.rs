//! Makes what the source relies on: a topic, a subscription, and a topic with a subscription for dead letters.
//!
//! Doing it twice changes nothing. A subscription that exists is compared setting by setting; what differs is changed
//! where Pub/Sub allows it and reported either way.

mod commands;
mod desired;

pub use commands::commands;
pub(super) use desired::{FEW_ATTEMPTS, MAX_ATTEMPTS};

use super::failure;
use super::{Access, Options};
use crate::source::ConnectError;
use desired::{DEAD_LETTER_RETENTION_DAYS, Desired, RETENTION_DAYS, Setting};
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::client::{SubscriptionAdmin, TopicAdmin};
use google_cloud_pubsub::model::Subscription;
use google_cloud_wkt::FieldMask;
use std::fmt;

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Config {
    options: Options,
    access: Access,
}

impl Config {
    /// The setup of the source that `url` names. Its options `topic` and `exactly_once` are for this.
    ///
    /// # Errors
    /// When the URL is not understood.
    pub fn from_url(url: &str) -> Result<Self, ConnectError> {
        let options = Options::parse(url)?;
        let access = Access::new(options.emulator.as_deref());
        Ok(Self { options, access })
    }

    /// `projects/PROJECT/topics/TOPIC`. Where the URL does not name it, it is called as the subscription, so that one name
    /// says where likes are sent and where they are pulled. [`setup`] keeps the topic of a subscription that exists.
    #[must_use]
    pub fn topic(&self) -> String {
        let Options { project, subscription, topic, .. } = &self.options;
        match topic {
            Some(path) if path.starts_with("projects/") => path.clone(),
            Some(id) => format!("projects/{project}/topics/{id}"),
            None => format!("projects/{project}/topics/{subscription}"),
        }
    }
}

/// The topic that takes what the broker gave up on: `TOPIC-dead-letters` in `project`, which is the subscription's, for
/// the likes' own topic may belong to somebody else.
#[must_use]
pub fn dead_letter_topic_of(project: &str, topic: &str) -> String {
    format!("projects/{project}/topics/{}-dead-letters", last_part(topic))
}

/// The subscription through which dead letters are looked at and sent again: without one they would be lost on arrival.
#[must_use]
pub fn inspect_subscription_of(project: &str, topic: &str) -> String {
    format!("projects/{project}/subscriptions/{}-dead-letters-inspect", last_part(topic))
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The thing, such as `subscription projects/demo/subscriptions/likes`.
    pub what: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of one thing, or of one setting of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not there and is now.
    Created,
    /// It was there. Settings that differed follow as steps of their own.
    AlreadyThere,
    /// A setting differed and is changed.
    Changed {
        /// Which setting.
        setting: &'static str,
        /// What it was.
        from: String,
        /// What it is now.
        to: String,
    },
    /// A setting differs, and Pub/Sub does not change it.
    Differs {
        /// Which setting.
        setting: &'static str,
        /// What it is.
        is: String,
        /// What it should be.
        desired: String,
        /// Why it stays, and what to do.
        advice: String,
    },
    /// Something that is not done here.
    LeftToYou(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &self.what;
        match &self.outcome {
            Outcome::Created => write!(f, "created the {what}"),
            Outcome::AlreadyThere => write!(f, "the {what} was there"),
            Outcome::Changed { setting, from, to } => write!(f, "changed {setting} of the {what} from {from} to {to}"),
            Outcome::Differs { setting, is, desired, advice } => {
                write!(f, "{setting} of the {what} is {is}, not {desired}: {advice}")
            }
            Outcome::LeftToYou(text) => write!(f, "left to you for the {what}: {text}"),
        }
    }
}

/// Setting up did not work. What was done before stays; running it again goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// There is no client.
    #[error("{0}")]
    NoClient(String),
    /// A call failed.
    #[error("the {what} cannot be set up: {problem}")]
    Call {
        /// What was to be made, read or changed.
        what: String,
        /// What happened and what to do.
        problem: String,
        /// The cause.
        #[source]
        source: Box<Error>,
    },
}

/// Makes what is missing and changes what differs.
///
/// # Errors
/// When Pub/Sub does not answer, or does not let this account do it.
pub async fn setup(config: &Config) -> Result<Vec<Step>, SetupError> {
    let no_client = |e| SetupError::NoClient(failure::no_client(&e, &config.access));
    let mut work = Work {
        config,
        topics: config.access.topics().await.map_err(no_client)?,
        subscriptions: config.access.subscriptions().await.map_err(no_client)?,
        steps: Vec::new(),
    };
    let project = &config.options.project;
    let path = config.options.subscription_path();
    let existing = work.find(&path).await?;
    // A topic that was deleted leaves a subscription without one, `_deleted-topic_`: there is nothing to keep then.
    let kept = existing.as_ref().map(|s| &s.topic).filter(|t| t.starts_with("projects/"));
    let topic = match (&config.options.topic, kept) {
        (None, Some(topic)) => topic.clone(),
        _ => config.topic(),
    };
    let dead_letters = dead_letter_topic_of(project, &topic);
    work.topic(&topic).await?;
    work.topic(&dead_letters).await?;
    let days = if config.access.is_emulator() { RETENTION_DAYS } else { DEAD_LETTER_RETENTION_DAYS };
    let inspect = Desired::inspection(inspect_subscription_of(project, &topic), &dead_letters, days);
    let existing_inspect = work.find(inspect.path()).await?;
    work.subscription(&inspect, existing_inspect).await?;
    let likes = Desired::likes(path, &topic, &dead_letters, config.options.exactly_once);
    work.subscription(&likes, existing).await?;
    if !config.access.is_emulator() {
        let text = commands::bindings(project, &dead_letters, likes.path()).join("\n");
        let advice = format!("Pub/Sub moves dead letters only once its service agent may; run\n{text}");
        work.step(format!("topic {dead_letters}"), Outcome::LeftToYou(advice));
    }
    Ok(work.steps)
}

struct Work<'a> {
    config: &'a Config,
    topics: TopicAdmin,
    subscriptions: SubscriptionAdmin,
    steps: Vec<Step>,
}

impl Work<'_> {
    fn step(&mut self, what: String, outcome: Outcome) {
        self.steps.push(Step { what, outcome });
    }

    fn failed(&self, what: &str, error: Error) -> SetupError {
        let place = self.config.access.place();
        let problem = match error.status().map(|status| status.code) {
            Some(Code::PermissionDenied) => {
                format!("this account may not; grant it roles/pubsub.editor in the project ({error})")
            }
            Some(Code::NotFound) => format!("something it needs does not exist; is the project right? ({error})"),
            Some(_) => format!("{place} says: {error}"),
            None => format!("{place} does not answer ({error})"),
        };
        SetupError::Call { what: what.to_owned(), problem, source: Box::new(error) }
    }

    async fn find(&self, path: &str) -> Result<Option<Subscription>, SetupError> {
        match self.subscriptions.get_subscription().set_subscription(path).send().await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is(&error, Code::NotFound) => Ok(None),
            Err(error) => Err(self.failed(&format!("subscription {path}"), error)),
        }
    }

    /// Creates first and asks never, so that a concurrent writer who does the same at the same time does no harm.
    async fn topic(&mut self, path: &str) -> Result<(), SetupError> {
        let what = format!("topic {path}");
        let outcome = match self.topics.create_topic().set_name(path).send().await {
            Ok(_) => Outcome::Created,
            Err(error) if is(&error, Code::AlreadyExists) => Outcome::AlreadyThere,
            // A topic of another project, which this account may read from but not make.
            Err(error) if is(&error, Code::PermissionDenied) && self.exists(path).await => Outcome::AlreadyThere,
            Err(error) => return Err(self.failed(&what, error)),
        };
        self.step(what, outcome);
        Ok(())
    }

    async fn exists(&self, topic: &str) -> bool {
        self.topics.get_topic().set_topic(topic).send().await.is_ok()
    }

    async fn subscription(&mut self, desired: &Desired, existing: Option<Subscription>) -> Result<(), SetupError> {
        let what = format!("subscription {}", desired.path());
        let existing = match existing {
            Some(existing) => existing,
            None => match self.subscriptions.create_subscription().with_request(desired.subscription()).send().await {
                Ok(_) => {
                    self.step(what, Outcome::Created);
                    return Ok(());
                }
                // Another writer was faster: then compare with what it made.
                Err(error) if is(&error, Code::AlreadyExists) => match self.find(desired.path()).await? {
                    Some(existing) => existing,
                    None => return Err(self.failed(&what, error)),
                },
                Err(error) => return Err(self.failed(&what, error)),
            },
        };
        self.step(what.clone(), Outcome::AlreadyThere);
        for (setting, is, advice) in desired.fixed_differences(&existing) {
            let desired = setting.show(&desired.subscription());
            self.step(what.clone(), Outcome::Differs { setting: setting.name(), is, desired, advice });
        }
        for setting in desired.settings() {
            self.adjust(&what, setting, desired, &existing).await?;
        }
        Ok(())
    }

    /// One call for each setting, so that one that is refused keeps no other from being changed. What counts is what
    /// Pub/Sub says the setting is afterwards.
    async fn adjust(
        &mut self,
        what: &str,
        setting: Setting,
        desired: &Desired,
        existing: &Subscription,
    ) -> Result<(), SetupError> {
        let (from, to) = (setting.show(existing), setting.show(&desired.subscription()));
        if from == to {
            return Ok(());
        }
        let change = self
            .subscriptions
            .update_subscription()
            .set_subscription(setting.copied(&desired.subscription(), existing.clone()))
            .set_update_mask(FieldMask::default().set_paths([setting.field()]));
        let name = setting.name();
        let outcome = match change.send().await {
            Ok(now) if setting.show(&now) == to => Outcome::Changed { setting: name, from, to },
            Ok(_) => {
                let advice = format!("{} kept it as it was; delete the subscription and run this again", self.place());
                Outcome::Differs { setting: name, is: from, desired: to, advice }
            }
            Err(error)
                if [Code::InvalidArgument, Code::FailedPrecondition, Code::Unimplemented]
                    .iter()
                    .any(|code| is(&error, *code)) =>
            {
                let advice = format!("{} refuses to change it ({error})", self.place());
                Outcome::Differs { setting: name, is: from, desired: to, advice }
            }
            Err(error) => return Err(self.failed(what, error)),
        };
        self.step(what.to_owned(), outcome);
        Ok(())
    }

    fn place(&self) -> String {
        self.config.access.place()
    }
}

fn is(error: &Error, code: Code) -> bool {
    error.status().is_some_and(|status| status.code == code)
}
