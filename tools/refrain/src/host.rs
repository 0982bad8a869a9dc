//! Facts of this host, from the system: cores, memory, instruction sets, the card's link.

use refrain_planner::machine::{Feature, Host, Link, LinkKind};
use std::collections::BTreeSet;
use std::fs;

/// What was found, and how.
pub struct Facts {
    /// The host.
    pub host: Host,
    /// Where each fact comes from.
    pub source: String,
}

/// Facts of this host.
pub fn facts() -> Facts {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let cores = physical_cores(&cpuinfo);
    let memory = memory_bytes(&meminfo);
    let from =
        |found: bool, file: &'static str, other: &'static str| if found { file } else { other };
    let source = format!(
        "probed: cores from {}, memory from {}, features by CPUID or the like; assumed: half of \
         memory is pinnable, the kernel's default limit for TTM",
        from(cores.is_some(), "/proc/cpuinfo", "usable threads"),
        from(memory.is_some(), "/proc/meminfo", "nothing, 1 GiB assumed"),
    );
    let memory_bytes = memory.unwrap_or(1 << 30);
    let host = Host {
        cores: cores.unwrap_or(threads).max(1),
        memory_bytes,
        pinned_bytes: memory_bytes / 2,
        features: features(),
    };
    Facts { host, source }
}

/// Pairs of package and core in `/proc/cpuinfo`; `None` where the kernel does not list them.
fn physical_cores(cpuinfo: &str) -> Option<u32> {
    let mut cores = BTreeSet::new();
    for processor in cpuinfo.split("\n\n") {
        let field = |name: &str| {
            let lines = processor.lines().filter_map(|line| line.split_once(':'));
            let mut named = lines.filter(|(key, _)| key.trim() == name);
            named.next().map(|(_, value)| value.trim().to_owned())
        };
        if let Some(core) = field("core id") {
            cores.insert((field("physical id"), core));
        }
    }
    u32::try_from(cores.len()).ok().filter(|count| *count > 0)
}

/// `MemTotal` of `/proc/meminfo`, which counts KiB.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

macro_rules! detected {
    ($detect:ident; $($name:tt $feature:ident),* $(,)?) => {
        [$((std::arch::$detect!($name), Feature::$feature)),*]
    };
}

fn features() -> Vec<Feature> {
    #[cfg(target_arch = "x86_64")]
    let table = detected!(is_x86_feature_detected;
        "avx2" Avx2, "fma" Fma, "f16c" F16c, "avx512f" Avx512f, "avx512bw" Avx512bw,
        "avx512vl" Avx512vl, "avx512vnni" Avx512vnni, "avxvnni" AvxVnni, "avx512bf16" Avx512bf16);
    #[cfg(target_arch = "aarch64")]
    let table = detected!(is_aarch64_feature_detected;
        "neon" Neon, "dotprod" Dotprod, "i8mm" I8mm);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let table: [(bool, Feature); 0] = [];
    let present = table.into_iter().filter(|(present, _)| *present);
    present.map(|(_, feature)| feature).collect()
}

/// The link of a PCI device `domain:bus:device`; `None` where sysfs does not say or no profile can.
pub fn pcie_link(pci: &str) -> Option<Link> {
    let read = |file: &str| {
        let path = format!("/sys/bus/pci/devices/{}.0/{file}", pci.to_lowercase());
        fs::read_to_string(path).ok()
    };
    link_of(&read("current_link_speed")?, &read("current_link_width")?)
}

/// The link of a speed such as `16.0 GT/s PCIe` and a width in lanes.
fn link_of(speed: &str, width: &str) -> Option<Link> {
    // Transfers per second and lane in MT/s by generation (PCI Express Base Specification).
    let (generation, mega_transfers) = match speed.split_whitespace().next()? {
        "8.0" | "8" => (3, 8_000u64),
        "16.0" | "16" => (4, 16_000),
        "32.0" | "32" => (5, 32_000),
        _ => return None,
    };
    let lanes: u64 = width.trim().parse().ok()?;
    let name = format!("pcie{generation}x{lanes}");
    let kind = LinkKind::ALL.iter().find(|kind| kind.name() == name)?;
    Some(Link {
        kind: *kind,
        // 128 of 130 bits are payload from generation 3 on, 8 bits a byte; rounded to the nearest.
        mb_per_s: (mega_transfers * lanes * 128 + 130 * 4) / (130 * 8),
    })
}

#[cfg(test)]
mod tests {
    use super::{facts, link_of, memory_bytes, physical_cores};
    use refrain_planner::machine::Machine;

    #[test]
    fn system_files_are_read() {
        let two = "processor : 0\nphysical id\t: 0\ncore id\t: 0\n\nprocessor : 1\nphysical id : 0\n\
                   core id : 0\n\nprocessor : 2\nphysical id : 1\ncore id : 0\n";
        assert_eq!(physical_cores(two), Some(2));
        assert_eq!(physical_cores("processor : 0\nBogoMIPS : 50\n"), None);
        assert_eq!(
            memory_bytes("MemTotal:       16 kB\nMemFree: 1 kB\n"),
            Some(16384)
        );
        assert_eq!(memory_bytes("MemTotal: x kB"), None);
        assert!(facts().host.memory_bytes > 0);
    }

    #[test]
    fn links_have_the_rates_of_the_built_in_profiles() {
        for (card, speed) in [
            ("gfx1100", "16.0 GT/s PCIe\n"),
            ("gfx1201", "32.0 GT/s PCIe\n"),
        ] {
            let link = Machine::load(card).unwrap().link;
            assert_eq!(link_of(speed, "16\n"), Some(link), "{card}");
        }
        for (speed, width) in [("2.5 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "1"), ("", "")] {
            assert_eq!(link_of(speed, width), None, "{speed} x{width}");
        }
    }
}
