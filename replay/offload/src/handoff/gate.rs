//! A place where one thread sleeps until another lets it go on, with a token that is never lost.
//!
//! The file is compiled twice: here over `std`, and in the model-checked test over the checker's own
//! mutex and condition variable, which `super::sync` names in both places.

use std::time::Duration;

use super::sync::{Condvar, Mutex};

/// A token and a sleeper. [`TokenGate::unpark`] leaves the token, [`TokenGate::park`] takes it: a wake
/// that comes before the sleep ends that sleep at once.
#[derive(Debug)]
pub struct TokenGate {
    token: Mutex<bool>,
    wake: Condvar,
}

impl TokenGate {
    /// A gate without a token.
    #[must_use]
    pub fn new() -> TokenGate {
        TokenGate {
            token: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Leaves the token and wakes the sleeper.
    pub fn unpark(&self) {
        // A thread cannot panic while it holds this lock, so a poisoned one still holds a valid token.
        let mut token = match self.token.lock() {
            Ok(token) => token,
            Err(poisoned) => poisoned.into_inner(),
        };
        *token = true;
        drop(token);
        self.wake.notify_one();
    }

    /// Sleeps until there is a token or `limit` has passed, and takes the token. May return early
    /// without one; callers look at their words again in any case.
    pub fn park(&self, limit: Option<Duration>) {
        let mut token = match self.token.lock() {
            Ok(token) => token,
            Err(poisoned) => poisoned.into_inner(),
        };
        if !*token {
            token = match limit {
                None => match self.wake.wait(token) {
                    Ok(token) => token,
                    Err(poisoned) => poisoned.into_inner(),
                },
                Some(limit) => match self.wake.wait_timeout(token, limit) {
                    Ok((token, _)) => token,
                    Err(poisoned) => poisoned.into_inner().0,
                },
            };
        }
        *token = false;
    }
}

impl Default for TokenGate {
    fn default() -> TokenGate {
        TokenGate::new()
    }
}
