//! A plan as flags.

use clap::Args;
use hotcount::lab::load::{Config, ConfigError, Faults, Shape};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Events")]
pub(super) struct PlanArgs {
    /// viral[:SHARE] (one post takes the share), zipf[:EXPONENT], uniform, flash[:SHARE] (viral, at a rate that ramps up),
    /// toggle (likes and unlikes in turn), replay[:SHARE] (the whole stream twice). A share is 0.5 unless given, the
    /// exponent 1
    #[arg(long, env = "HOTCOUNT_LOAD_SHAPE", default_value = "viral", value_name = "SHAPE")]
    shape: String,
    /// Messages, faults included; replay sends them twice
    #[arg(long, env = "HOTCOUNT_LOAD_MESSAGES", default_value_t = 100_000, value_name = "N")]
    messages: u64,
    /// Posts to choose from
    #[arg(long, env = "HOTCOUNT_LOAD_POSTS", default_value_t = 1_000, value_name = "N")]
    posts: u64,
    /// Users, who come round in turn [default: 1000000; for toggle a twentieth of the messages]
    #[arg(long, env = "HOTCOUNT_LOAD_USERS", value_name = "N")]
    users: Option<u64>,
    /// The share of likes that take back what the same user liked in the round before: it needs fewer users than likes
    #[arg(long, env = "HOTCOUNT_LOAD_UNLIKES", default_value_t = 0.0, value_name = "SHARE")]
    unlikes: f64,
    /// What post ids begin with. A second load into the same store needs another
    #[arg(long, env = "HOTCOUNT_LOAD_POST_PREFIX", default_value = "post-", value_name = "TEXT")]
    post_prefix: String,
    /// Everything random grows from it
    #[arg(long, env = "HOTCOUNT_LOAD_SEED", default_value_t = 1, value_name = "N")]
    seed: u64,
    /// A little of every fault; a share of its own goes before it
    #[arg(long, env = "HOTCOUNT_LOAD_FAULTS", help_heading = "Faults")]
    faults: bool,
    /// The same message again, as a broker delivers it whose acknowledgement was lost [with --faults: 0.2]
    #[arg(long, env = "HOTCOUNT_LOAD_REDELIVERED", value_name = "SHARE", help_heading = "Faults")]
    redelivered: Option<f64>,
    /// The same event in a new message, as a publisher sends it whose answer was lost [with --faults: 0.05]
    #[arg(long, env = "HOTCOUNT_LOAD_RETRIED", value_name = "SHARE", help_heading = "Faults")]
    retried: Option<f64>,
    /// A new event of the same user and post [with --faults: 0.05]
    #[arg(long, env = "HOTCOUNT_LOAD_DOUBLE_CLICKED", value_name = "SHARE", help_heading = "Faults")]
    double_clicked: Option<f64>,
    /// Likes that change places with one up to 65,536 likes away [with --faults: 0.01]
    #[arg(long, env = "HOTCOUNT_LOAD_LATE", value_name = "SHARE", help_heading = "Faults")]
    late: Option<f64>,
    /// Likes that change places with one nearby [with --faults: 0.3]
    #[arg(long, env = "HOTCOUNT_LOAD_SHUFFLED", value_name = "SHARE", help_heading = "Faults")]
    shuffled: Option<f64>,
    /// Messages that are no event [with --faults: 0.001]
    #[arg(long, env = "HOTCOUNT_LOAD_POISON", value_name = "SHARE", help_heading = "Faults")]
    poison: Option<f64>,
    /// Messages that are no event, and large [with --faults: 0.0001]
    #[arg(long, env = "HOTCOUNT_LOAD_OVERSIZED", value_name = "SHARE", help_heading = "Faults")]
    oversized: Option<f64>,
    /// Bytes of such a message
    #[arg(long, env = "HOTCOUNT_LOAD_OVERSIZED_BYTES", default_value_t = 64 << 10, value_name = "BYTES", help_heading = "Faults")]
    oversized_bytes: usize,
}

impl PlanArgs {
    pub(super) fn shape(&self) -> Result<Shape, ConfigError> {
        self.shape.parse()
    }

    /// The plan's configuration, with `messages` instead of the flag where another flag decides.
    pub(super) fn config(&self, shape: Shape, messages: Option<u64>) -> Config {
        let messages = messages.unwrap_or(self.messages);
        let users = if shape == Shape::Toggle { (messages / 20).max(1) } else { 1_000_000 };
        let share = |given: Option<f64>, with_faults| given.unwrap_or(if self.faults { with_faults } else { 0.0 });
        Config {
            shape,
            faults: Faults {
                redelivered: share(self.redelivered, 0.2),
                retried: share(self.retried, 0.05),
                double_clicked: share(self.double_clicked, 0.05),
                late: share(self.late, 0.01),
                shuffled: share(self.shuffled, 0.3),
                poison: share(self.poison, 0.001),
                oversized: share(self.oversized, 0.000_1),
            },
            messages,
            posts: self.posts,
            users: self.users.unwrap_or(users),
            unlikes: self.unlikes,
            oversized_bytes: self.oversized_bytes,
            post_prefix: self.post_prefix.clone(),
            seed: self.seed,
        }
    }
}
