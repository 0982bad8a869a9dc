//! Facts that a report states about where and what: machine, load, date, plan, prompt. Everything is
//! read, nothing is measured here.

use super::report::{Machine, PlanFacts};
use refrain_kernels::Target;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_planner::memory::bound;
use refrain_replay::OpenedDevice;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Files of a card's sysfs folder that are worth a line in a report, and how much of each.
const CARD_FILES: &[&str] = &[
    "vbios_version",
    "fw_version/mec_fw_version",
    "fw_version/rlc_fw_version",
    "fw_version/smc_fw_version",
    "power_dpm_force_performance_level",
    "pp_dpm_sclk",
    "pp_dpm_mclk",
    "current_link_speed",
    "current_link_width",
];

/// Now, UTC, as `2026-11-30T02:19:00Z`.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    iso(since.map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970 as a date and time (civil-from-days, H. Hinnant).
fn iso(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Load of the host over the last minute; 0 where the system does not say.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// The machine behind a device.
pub fn machine(opened: &OpenedDevice) -> Machine {
    let info = opened.device.info();
    let software = opened.soft.is_some();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        device: opened.spec.to_string(),
        name: info.name.clone(),
        target: info.target.clone(),
        software,
        compute_units: info.compute_units,
        vram_bytes: info.vram_bytes,
        pci: (!software).then(|| info.pci.clone()),
        driver: info.driver_version.clone(),
        runtime: info.runtime_version.clone(),
        card: match software {
            true => BTreeMap::new(),
            false => card(&info.pci),
        },
        kernel: kernel.trim().to_owned(),
        cpu: cpu_name(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        threads: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        program: format!("refrain {}", env!("CARGO_PKG_VERSION")),
        kernel_compiler: Target::parse(&info.target)
            .and_then(|target| compiler(refrain_kernels::code_object(target).bytes()))
            .unwrap_or_else(|| "unknown".to_owned()),
    }
}

fn cpu_name(cpuinfo: &str) -> Option<String> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == "model name");
    found.map(|(_, value)| value.trim().to_owned())
}

fn card(pci: &str) -> BTreeMap<String, String> {
    let folder = format!("/sys/bus/pci/devices/{}.0", pci.to_lowercase());
    let read = |file: &&str| {
        let text = fs::read_to_string(Path::new(&folder).join(file)).ok()?;
        // Of a clock table the active line is the one with a star.
        let active = text.lines().find(|line| line.ends_with('*'));
        let line = active.or_else(|| text.lines().next())?;
        Some(((*file).to_owned(), line.trim().to_owned()))
    };
    CARD_FILES.iter().filter_map(read).collect()
}

/// The compiler's own line in a code object's `.comment`.
fn compiler(object: &[u8]) -> Option<String> {
    let needle = b"clang version ";
    let at = object
        .windows(needle.len())
        .position(|bytes| bytes == needle)?;
    let rest = object.get(at..)?;
    let text = rest.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text.get(..text.len().min(120))?).into_owned())
}

/// What a report says about a plan.
pub fn plan(label: &str, plan: &CheckedPlan, contexts: &[u32]) -> PlanFacts {
    let identity = plan.identity();
    let mut symbols: Vec<_> = plan.kernels.iter().map(|k| (&k.symbol, k.object)).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let mut objects: Vec<String> = plan.kernels.iter().map(|k| hex(&k.object)).collect();
    objects.sort_unstable();
    objects.dedup();
    let least = |context: &u32| bound(plan, &plan.machine, *context).map(|b| b.seconds * 1e6);
    PlanFacts {
        label: label.to_owned(),
        plan_id: hex(plan.id()),
        model_name: plan.model.name.clone(),
        model_bytes: plan.model.file_bytes(),
        model: hex(&identity.model),
        structure: hex(&identity.structure),
        schedule: hex(&identity.schedule),
        artifacts: hex(&identity.artifacts),
        sequence_hash: identity.sequence.to_string(),
        launches: plan.launches().count(),
        runs: refrain_replay::segments::runs(plan).len(),
        host_steps: plan.barriers().count(),
        unique_kernels: symbols.len(),
        waits: plan.schedule.waits.len(),
        bucket: plan.options.bucket,
        kv: format!("{:?}", plan.options.kv_dtype).to_lowercase(),
        gpu_layers: plan.options.gpu_layers,
        exec: plan.options.exec.map(|exec| exec.to_string()),
        code_objects: objects,
        bandwidth_bound_us: contexts.iter().map(least).collect(),
    }
}

/// Digest of token ids.
pub fn token_hash(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
    hex(blake3::hash(&bytes).as_bytes())
}

/// A prompt of `tokens` ids for a vocabulary: mixed, the same everywhere, and never one id alone.
pub fn prompt(tokens: u32, vocab: u32) -> Vec<u32> {
    // Multiplier and increment of the MMIX generator (Knuth).
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(vocab.max(1))) as u32
    };
    (0..tokens).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::{compiler, cpu_name, iso, prompt};

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_005_140, "2026-11-30T02:19:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(iso(seconds), text);
        }
    }

    #[test]
    fn facts_are_read_from_their_files() {
        let cpuinfo = "processor : 0\nmodel name\t: A CPU  \n\nmodel name : other\n";
        assert_eq!(cpu_name(cpuinfo).as_deref(), Some("A CPU"));
        assert_eq!(
            compiler(b"\0\0x clang version 19.1.7 (y)\0z").as_deref(),
            Some("clang version 19.1.7 (y)")
        );
        assert_eq!(compiler(b"nothing"), None);
    }

    #[test]
    fn prompts_are_in_the_vocabulary_and_mixed() {
        let ids = prompt(200, 96);
        assert!(ids.iter().all(|id| *id < 96));
        let distinct: std::collections::BTreeSet<u32> = ids.iter().copied().collect();
        assert!(distinct.len() > 60, "{}", distinct.len());
        assert_eq!(prompt(200, 96), ids);
    }
}
