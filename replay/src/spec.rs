//! Naming a device: `auto`, `soft:gfxNNNN`, `rocm:N`, `cpu`.

use refrain_kernels::Target;
use std::fmt;

/// Which device a user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceSpec {
    /// The first ROCm device, or the software GPU where there is none.
    Auto,
    /// The software GPU as one target.
    Soft(Target),
    /// A ROCm device by ordinal.
    Rocm(u32),
    /// No GPU: this machine's CPU executes the launches.
    Cpu,
}

/// A device name that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {given:?} is none of auto, {}, rocm:N (N from 0), cpu",
    soft_names()
)]
pub struct DeviceSpecError {
    /// What was given.
    pub given: String,
}

fn soft_names() -> String {
    Target::ALL
        .map(|target| format!("soft:{target}"))
        .join(", ")
}

impl DeviceSpec {
    /// Target that [`DeviceSpec::Auto`] takes where no card is present.
    pub const DEFAULT_SOFT: Target = Target::Gfx1201;

    /// Reads a name.
    ///
    /// # Errors
    /// [`DeviceSpecError`] with the names that exist.
    pub fn parse(text: &str) -> Result<Self, DeviceSpecError> {
        let error = || DeviceSpecError {
            given: text.to_owned(),
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            Some(("soft", target)) => Target::parse(target).map(Self::Soft).ok_or_else(error),
            Some(("rocm", ordinal)) if ordinal.bytes().all(|b| b.is_ascii_digit()) => {
                ordinal.parse().map(Self::Rocm).map_err(|_| error())
            }
            _ => Err(error()),
        }
    }
}

impl std::str::FromStr for DeviceSpec {
    type Err = DeviceSpecError;

    fn from_str(text: &str) -> Result<Self, DeviceSpecError> {
        Self::parse(text)
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Soft(target) => write!(f, "soft:{target}"),
            Self::Rocm(ordinal) => write!(f, "rocm:{ordinal}"),
            Self::Cpu => f.write_str("cpu"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceSpec;

    #[test]
    fn names_round_trip() {
        for name in [
            "auto",
            "soft:gfx1100",
            "soft:gfx1151",
            "soft:gfx1201",
            "rocm:0",
            "rocm:17",
            "cpu",
        ] {
            assert_eq!(DeviceSpec::parse(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_choices() {
        for name in [
            "",
            "Auto",
            "soft",
            "soft:",
            "soft:gfx906",
            "rocm",
            "rocm:",
            "rocm:-1",
            "rocm:+1",
            "rocm:99999999999",
            "cuda:0",
            "cpu:0",
            "CPU",
            "auto:0",
        ] {
            let error = DeviceSpec::parse(name).expect_err(name).to_string();
            assert!(
                error.contains("soft:gfx1201") && error.contains("rocm:N"),
                "{error}"
            );
        }
    }
}
