//! The dead letters of a Pub/Sub subscription.

use super::Select;
use crate::cli::Exit;
use crate::cli::confirm::{Confirm, Consent};
use crate::cli::output::{beginning, line};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hotcount::http_api::rfc3339;
use hotcount::source::pubsub::dead_letters::{DeadLetter, DeadLetters};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Dead letters that are in memory at once while they are sent again: a payload may have 10 MiB.
const AT_ONCE: usize = 20;

pub(super) async fn list(select: Select, json: bool) -> anyhow::Result<Exit> {
    let mut letters = select.open().await?;
    let name = letters.name();
    let listed = show_all(&mut letters, &select, None, json).await;
    letters.close().await;
    let listed = listed?;
    if !json {
        let more = if listed < select.limit as usize {
            format!("nothing more came for {} s", select.wait_s)
        } else {
            "there may be more: --limit shows them".to_owned()
        };
        crate::cli::output::complain(&format!("{listed} dead letters on {name}; {more}"));
    }
    Ok(Exit::Done)
}

pub(super) async fn redrive(select: Select, confirm: Confirm, json: bool) -> anyhow::Result<Exit> {
    let consent = confirm.consent("publishes dead letters again and acknowledges them")?;
    let mut letters = select.open().await?;
    let (limit, from, to) = (select.limit, letters.name(), letters.topic().to_owned());
    if !consent.allows(&format!("Publish up to {limit} dead letters of {from} to {to} again, and acknowledge them?"))? {
        crate::cli::output::complain("nothing was sent");
        letters.close().await;
        return Ok(Exit::Finding);
    }
    let sent = if consent == Consent::DryRun {
        let shown = show_all(&mut letters, &select, Some("would_redrive"), json).await;
        shown.map(|shown| (json!({"would_redrive": shown}), format!("{shown} would be sent to {to} again"), 0))
    } else {
        let sent = redrive_all(&mut letters, &select, json).await;
        sent.map(|(redriven, left)| {
            let text = format!("{redriven} sent to {to} again, {left} left");
            (json!({"redriven": redriven, "left": left}), text, left)
        })
    };
    letters.close().await;
    let (summary, text, left) = sent?;
    if json {
        line(&summary.to_string())?;
    } else {
        crate::cli::output::complain(&text);
    }
    Ok(if left == 0 { Exit::Done } else { Exit::LeftToRedelivery })
}

impl Select {
    async fn open(&self) -> anyhow::Result<DeadLetters> {
        Ok(DeadLetters::open(self.source.typed(), self.subscription.as_deref(), self.limit).await?)
    }

    fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_s)
    }
}

/// Shows letters until there are enough, or no more. All are held to the end, so that none comes twice, and without their
/// payloads, so that holding costs little.
async fn show_all(
    letters: &mut DeadLetters,
    select: &Select,
    outcome: Option<&str>,
    json: bool,
) -> anyhow::Result<usize> {
    let (limit, mut held) = (select.limit as usize, Vec::new());
    while held.len() < limit {
        let pulled = letters.pull(limit - held.len(), select.wait()).await?;
        if pulled.is_empty() {
            break;
        }
        for letter in pulled {
            line(&if json { row(&letter, outcome).to_string() } else { text(&letter) })?;
            held.push(letter.ack);
        }
    }
    Ok(held.len())
}

/// Sends letters again until there were enough, or no more: how many went, and how many stay.
async fn redrive_all(letters: &mut DeadLetters, select: &Select, json: bool) -> anyhow::Result<(usize, usize)> {
    let (limit, mut redriven, mut left) = (select.limit as usize, 0, 0);
    while redriven + left < limit {
        let pulled = letters.pull(AT_ONCE.min(limit - redriven - left), select.wait()).await?;
        if pulled.is_empty() {
            break;
        }
        let ids: Vec<String> = pulled.iter().map(|letter| letter.message_id.clone()).collect();
        for (id, outcome) in ids.iter().zip(letters.redrive(pulled).await) {
            let (object, text) = match &outcome {
                Ok(new) => {
                    redriven += 1;
                    (
                        json!({"message_id": id, "outcome": "redriven", "new_message_id": new}),
                        format!("{id}  sent again as {new}"),
                    )
                }
                Err(reason) => {
                    left += 1;
                    (json!({"message_id": id, "outcome": "left", "reason": reason}), format!("{id}  stays: {reason}"))
                }
            };
            line(&if json { object.to_string() } else { text })?;
        }
        if left > 0 {
            // What stays comes back at once, and would be tried in a circle.
            break;
        }
    }
    Ok((redriven, left))
}

fn row(letter: &DeadLetter, outcome: Option<&str>) -> Value {
    let attributes: Vec<_> = letter.attributes.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    let mut row = json!({
        "message_id": letter.message_id,
        "subscription": letter.subscription,
        "delivery_attempts": letter.attempts,
        "published_at": letter.published_at.map(rfc3339),
        "dead_since": letter.dead_since.map(rfc3339),
        "attributes": attributes,
        "bytes": letter.payload.len(),
        "data": BASE64.encode(&letter.payload),
    });
    if let Some(outcome) = outcome {
        row["outcome"] = outcome.into();
    }
    row
}

/// A letter for people, in two lines.
fn text(letter: &DeadLetter) -> String {
    let time = |at: Option<SystemTime>| at.map_or_else(|| "?".to_owned(), rfc3339);
    format!(
        "{}  given up by {} after {} attempts\n  published {} · dead since {} · {} bytes · {}",
        letter.message_id,
        letter.subscription.as_deref().unwrap_or("?"),
        letter.attempts.map_or_else(|| "?".to_owned(), |attempts| attempts.to_string()),
        time(letter.published_at),
        time(letter.dead_since),
        letter.payload.len(),
        beginning(&letter.payload)
    )
}
