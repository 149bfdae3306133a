//! Asking before something is destroyed.

use clap::Args;
use std::io::{self, BufRead, IsTerminal, Write};

/// Flags of every command that destroys something.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Confirm {
    /// Change nothing; show what would be done
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// How far a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// It shows what it would do.
    DryRun,
    /// It asks first.
    Ask,
    /// It was told not to ask.
    Given,
}

/// The answer to one of several questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// Yes, to this and to all that follow.
    All,
}

impl Confirm {
    /// What the flags say. Without them somebody must be there to be asked: a script that forgot `--yes` would wait for
    /// ever, or take the end of its input for an answer.
    pub(crate) fn consent(self, what_it_does: &str) -> anyhow::Result<Consent> {
        if self.dry_run {
            return Ok(Consent::DryRun);
        }
        if self.yes {
            return Ok(Consent::Given);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            anyhow::bail!(
                "this {what_it_does}, and there is no terminal to ask on: give --yes to do it, or --dry-run to see what it would do"
            );
        }
        Ok(Consent::Ask)
    }
}

impl Consent {
    /// Whether to go on, for a command with one question.
    pub(crate) fn allows(self, question: &str) -> io::Result<bool> {
        Ok(match self {
            Self::DryRun | Self::Given => true,
            Self::Ask => ask(question, "[y/N]", &mut io::stdin().lock(), &mut io::stderr())? == Answer::Yes,
        })
    }

    /// Whether to go on with one of many, for a command that asks about each. "All" is remembered.
    pub(crate) fn allows_one(&mut self, question: &str) -> io::Result<bool> {
        if *self != Self::Ask {
            return Ok(true);
        }
        let answer = ask(question, "[y]es, [N]o, [a]ll", &mut io::stdin().lock(), &mut io::stderr())?;
        if answer == Answer::All {
            *self = Self::Given;
        }
        Ok(answer != Answer::No)
    }
}

/// Whatever is not a yes is a no, the end of the input too.
fn ask(question: &str, choice: &str, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<Answer> {
    write!(output, "{} {choice} ", super::plain::plain(question))?;
    output.flush()?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Answer::Yes,
        "a" | "all" if choice.contains("[a]ll") => Answer::All,
        _ => Answer::No,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let answer = |typed: &str, choice| {
            let mut shown = Vec::new();
            let answer = ask("Delete it?", choice, &mut typed.as_bytes(), &mut shown).expect("memory can be read");
            assert!(shown.starts_with(b"Delete it? ["));
            answer
        };
        for (typed, expected) in [("y\n", Answer::Yes), (" YES \n", Answer::Yes), ("n\n", Answer::No)] {
            assert_eq!(answer(typed, "[y/N]"), expected, "{typed:?}");
        }
        for typed in ["\n", "", "yep\n", "all\n", "delete\n"] {
            assert_eq!(answer(typed, "[y/N]"), Answer::No, "{typed:?}");
        }
        assert_eq!(answer("a\n", "[y]es, [N]o, [a]ll"), Answer::All);
    }

    #[test]
    fn all_is_remembered_and_flags_are_never_asked() {
        let mut given = Consent::Given;
        assert!(given.allows_one("Really?").expect("nobody is asked"));
        assert!(Consent::DryRun.allows("Really?").expect("nobody is asked"));
        let confirm = Confirm { dry_run: true, yes: false };
        assert_eq!(confirm.consent("deletes").expect("nothing is changed"), Consent::DryRun);
    }
}
