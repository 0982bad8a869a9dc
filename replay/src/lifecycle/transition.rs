//! What a session may change between texts and tokens, as data: each transition happens with
//! nothing in flight, or is refused by code before anything is touched.
//!
//! This file only judges; [`crate::session`] waits, asks, and acts.

use crate::refusal::{Code, Refusal};
use std::fmt;

/// A change of what a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Another text from position 0.
    Reset,
    /// On at another position of the same text.
    Jump {
        /// The position that runs next.
        to: u32,
    },
    /// On under the plan of another bucket.
    Bucket {
        /// Positions of that plan are below this.
        end: u32,
    },
    /// A longer context.
    Grow {
        /// Tokens of context wanted.
        context: u32,
    },
    /// Another model or plan in place of this one.
    Swap,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => f.write_str("a new text"),
            Self::Jump { to } => write!(f, "a jump to position {to}"),
            Self::Bucket { end } => write!(f, "the bucket below {end}"),
            Self::Grow { context } => write!(f, "a context of {context} tokens"),
            Self::Swap => f.write_str("another plan"),
        }
    }
}

/// What is known when a transition is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Tokens published and not known to be complete.
    pub in_flight: u64,
    /// Position that the next token would run at.
    pub position: u32,
    /// Tokens of context that the buffers hold.
    pub context: u32,
    /// Ends of the buckets that there are plans for, ascending.
    pub buckets: &'a [u32],
    /// Whether the plan keeps a state that only ever goes forward.
    pub recurrent: bool,
    /// Why nothing runs any more, if so.
    pub poisoned: Option<&'a str>,
}

/// Judges a transition.
///
/// # Errors
/// The [`Refusal`].
pub fn judge(transition: Transition, facts: &Facts<'_>) -> Result<(), Refusal> {
    let refuse = |code, why: String| Err(Refusal::new(code, format!("{transition}: {why}")));
    // A plan in place of a broken one is the remedy, so only that is allowed after a failure.
    if let (Some(reason), false) = (facts.poisoned, transition == Transition::Swap) {
        return refuse(
            Code::Transition,
            format!("the session is poisoned: {reason}"),
        );
    }
    if facts.in_flight > 0 {
        let count = facts.in_flight;
        return refuse(
            Code::Transition,
            format!("{count} tokens are in flight, wait for them first"),
        );
    }
    match transition {
        Transition::Reset | Transition::Swap => Ok(()),
        Transition::Jump { to } if to == facts.position => Ok(()),
        Transition::Jump { to } if to > facts.position => refuse(
            Code::Transition,
            format!("the rows from {} on were never decoded", facts.position),
        ),
        Transition::Jump { .. } if facts.recurrent => refuse(
            Code::Transition,
            format!(
                "the model's recurrent state stands at position {} and cannot go back",
                facts.position
            ),
        ),
        Transition::Jump { .. } => Ok(()),
        Transition::Bucket { end } if facts.buckets.contains(&end) => Ok(()),
        Transition::Bucket { .. } => refuse(
            Code::BeyondContext,
            format!("there are plans for the buckets below {:?}", facts.buckets),
        ),
        Transition::Grow { context } if context <= facts.context => Ok(()),
        Transition::Grow { .. } => refuse(
            Code::BeyondContext,
            format!("the KV cache holds {} tokens", facts.context),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, Transition, judge};
    use crate::refusal::Code;

    const IDLE: Facts<'_> = Facts {
        in_flight: 0,
        position: 10,
        context: 64,
        buckets: &[16, 64],
        recurrent: false,
        poisoned: None,
    };

    #[test]
    fn every_transition_is_allowed_or_refused_by_its_code() {
        let recurrent = Facts {
            recurrent: true,
            ..IDLE
        };
        let rows = [
            (Transition::Reset, IDLE, None),
            (Transition::Swap, IDLE, None),
            (Transition::Jump { to: 10 }, recurrent, None),
            (Transition::Jump { to: 4 }, IDLE, None),
            (
                Transition::Jump { to: 4 },
                recurrent,
                Some(Code::Transition),
            ),
            (Transition::Jump { to: 11 }, IDLE, Some(Code::Transition)),
            (Transition::Bucket { end: 64 }, IDLE, None),
            (
                Transition::Bucket { end: 32 },
                IDLE,
                Some(Code::BeyondContext),
            ),
            (Transition::Grow { context: 64 }, IDLE, None),
            (
                Transition::Grow { context: 65 },
                IDLE,
                Some(Code::BeyondContext),
            ),
        ];
        for (transition, facts, expected) in rows {
            let found = judge(transition, &facts).err().map(|refusal| refusal.code);
            assert_eq!(found, expected, "{transition}");
        }
    }

    #[test]
    fn nothing_changes_while_tokens_are_in_flight_and_only_a_swap_after_a_failure() {
        let all = [
            Transition::Reset,
            Transition::Jump { to: 10 },
            Transition::Bucket { end: 16 },
            Transition::Grow { context: 8 },
            Transition::Swap,
        ];
        let flying = Facts {
            in_flight: 2,
            ..IDLE
        };
        let poisoned = Facts {
            poisoned: Some("token 3 failed"),
            ..IDLE
        };
        for transition in all {
            let refusal = judge(transition, &flying).unwrap_err();
            assert_eq!(refusal.code, Code::Transition);
            assert!(refusal.detail.contains("2 tokens"), "{refusal}");
            match (transition, judge(transition, &poisoned)) {
                (Transition::Swap, Ok(())) => {}
                (_, Err(refusal)) => assert!(refusal.detail.contains("token 3"), "{refusal}"),
                (transition, Ok(())) => panic!("{transition} of a poisoned session"),
            }
        }
    }
}
