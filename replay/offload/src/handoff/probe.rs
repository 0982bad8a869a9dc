//! A handshake that is tried before the protocol is trusted: round trips with a pattern that changes.
//!
//! Both sides run here: [`ask`] is the host's, [`echo`] a worker's. A device takes the worker's part
//! with a kernel that computes [`reply`]. What to do after a failed probe is the caller's decision.

use std::time::Duration;

use thiserror::Error;

use super::error::HandoffError;
use super::protocol::{Request, Requester, Worker};
use super::words::{Clock, Env, Payload};

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// A round trip did not end as it should.
    #[error("round trip {round} of the hand-off probe: {source}")]
    Handoff {
        /// The round trip, from 0.
        round: u32,
        /// What happened.
        source: HandoffError,
    },
    /// A word came back wrong: results are visible after the done word, or they are not.
    #[error(
        "round trip {round} of the hand-off probe: word {word} is {found:#018x}, not {expected:#018x}; \
         this memory does not order results before the done word, so use eager mode"
    )]
    Pattern {
        /// The round trip, from 0.
        round: u32,
        /// Index of the word.
        word: usize,
        /// What was read.
        found: u64,
        /// What the worker had to write.
        expected: u64,
    },
    /// There is nothing to send.
    #[error("a hand-off probe needs at least one word each way: {outward} out, {back} back")]
    Empty {
        /// Words of the outward payload.
        outward: usize,
        /// Words of the payload back.
        back: usize,
    },
}

/// Times of a probe that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeReport {
    /// Round trips made.
    pub rounds: u32,
    /// The fastest.
    pub min: Duration,
    /// All together, divided by their number.
    pub mean: Duration,
    /// The slowest.
    pub max: Duration,
}

/// The pattern of a word in a round: never the same in two neighbouring rounds or words.
#[must_use]
pub fn pattern(round: u64, word: usize) -> u64 {
    // The finaliser of splitmix64: a bijection, so distinct inputs stay distinct.
    let mut x = round.rotate_left(32) ^ (word as u64) ^ 0x9e37_79b9_7f4a_7c15;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a worker writes for a word that it has read.
#[must_use]
pub fn reply(word: u64) -> u64 {
    !word.rotate_left(17)
}

/// Makes `rounds` round trips: writes a pattern into `outward`, posts, waits at most `limit`, compares
/// `back`. Steps are numbered by round.
///
/// # Errors
/// [`ProbeError`], with the round trip in which it happened.
pub fn ask<E: Env>(
    requester: &mut Requester<E>,
    outward: &impl Payload,
    back: &impl Payload,
    rounds: u32,
    limit: Duration,
) -> Result<ProbeReport, ProbeError> {
    let words = outward.words().min(back.words());
    if words == 0 {
        return Err(ProbeError::Empty {
            outward: outward.words(),
            back: back.words(),
        });
    }
    let (mut min, mut max, mut sum) = (Duration::MAX, Duration::ZERO, Duration::ZERO);
    for round in 0..rounds {
        for word in 0..words {
            outward.put(word, pattern(u64::from(round), word));
        }
        let began = requester.clock().now();
        requester
            .post(round)
            .and_then(|_| requester.wait(limit))
            .map_err(|source| ProbeError::Handoff { round, source })?;
        let took = requester.clock().now().saturating_sub(began);
        for word in 0..words {
            let expected = reply(pattern(u64::from(round), word));
            let found = back.get(word);
            if found != expected {
                return Err(ProbeError::Pattern {
                    round,
                    word,
                    found,
                    expected,
                });
            }
        }
        (min, max, sum) = (min.min(took), max.max(took), sum + took);
    }
    Ok(ProbeReport {
        rounds,
        min: if rounds == 0 { Duration::ZERO } else { min },
        mean: sum.checked_div(rounds).unwrap_or_default(),
        max,
    })
}

/// Answers probes until the host leaves. With several workers each writes the words of its own index,
/// counted round.
pub fn echo<E: Env>(
    worker: &mut Worker<E>,
    workers: usize,
    from: &impl Payload,
    to: &impl Payload,
) {
    let index = worker.index();
    while let Some(request) = worker.take() {
        echo_one(request, index, workers, from, to);
    }
}

/// Answers one probe.
pub fn echo_one<E: Env>(
    request: Request<'_, E>,
    index: usize,
    workers: usize,
    from: &impl Payload,
    to: &impl Payload,
) {
    let words = from.words().min(to.words());
    for word in (index..words).step_by(workers.max(1)) {
        to.put(word, reply(from.get(word)));
    }
    request.finish();
}
