//! Opening a device: starting both runtimes, finding the HSA agent of a HIP ordinal, and saying
//! exactly why there is none. What to run on it is left to others.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{DeviceError, NoDevice};
use crate::load::{Origin, Runtime};
use crate::observe::{Observer, ObserverGuard};
use crate::queue::Faults;
use crate::result::{Hip, Hsa};
use crate::status;
use crate::stream::Stream;
use crate::sys::hip::{
    HIP_ATTRIBUTE_PCI_BUS_ID, HIP_ATTRIBUTE_PCI_DEVICE_ID, HIP_ATTRIBUTE_PCI_DOMAIN_ID,
};
use crate::sys::hsa::{
    HSA_AGENT_INFO_WAVEFRONT_SIZE, HSA_AMD_AGENT_INFO_BDFID, HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT,
    HSA_AMD_AGENT_INFO_DOMAIN, HSA_DEVICE_TYPE_CPU, HSA_DEVICE_TYPE_GPU, HSA_ERROR_INVALID_AGENT,
    HSA_POOL_FLAG_FINE_GRAINED, HSA_POOL_FLAG_KERNARG, HSA_POOL_INFO_ALLOC_ALLOWED,
    HSA_POOL_INFO_GLOBAL_FLAGS, HSA_POOL_INFO_SEGMENT, HSA_SEGMENT_GLOBAL, HsaAgent, HsaMemoryPool,
};

/// Instruction sets that Refrain has kernels and packet tables for.
pub const SUPPORTED_TARGETS: &[&str] = &["gfx1100", "gfx1151", "gfx1201"];

/// The amdgpu driver's compute interface.
const KFD: &str = "/dev/kfd";

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `soft:gfx1201` for a software GPU, else the card's name.
    pub name: String,
    /// Instruction set, such as `gfx1201`.
    pub target: String,
    /// Compute units.
    pub compute_units: u32,
    /// Lanes of a wave, as the agent reports it.
    pub wave_size: u32,
    /// Bytes of device memory.
    pub vram_bytes: u64,
    /// `domain:bus:device` on PCI; of no meaning for a software GPU.
    pub pci: String,
    /// Version that `hipDriverGetVersion` reports.
    pub driver_version: String,
    /// Version that `hipRuntimeGetVersion` reports.
    pub runtime_version: String,
    /// Where the function tables come from.
    pub origin: Origin,
}

/// Memory pools of the host that the device uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pools {
    pub(crate) kernarg: Option<HsaMemoryPool>,
    pub(crate) fine_grained: Option<HsaMemoryPool>,
}

/// An open device. Buffers, modules, queues and signals hold it; it may be used from any thread.
pub struct Device {
    // Fields drop in this order: the stream before the runtimes, their code last.
    stream: Stream,
    pub(crate) hip: Arc<Hip>,
    pub(crate) agent: HsaAgent,
    pub(crate) pools: Pools,
    pub(crate) faults: Arc<Faults>,
    pub(crate) next_module: AtomicU64,
    /// Number of this opening, unique in the process.
    pub(crate) key: u64,
    tick_hz: u64,
    info: DeviceInfo,
    pub(crate) hsa: Hsa,
    _keep_alive: Arc<dyn core::any::Any + Send + Sync>,
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Device").field(&self.info).finish()
    }
}

impl Device {
    /// Starts the runtimes and opens device `ordinal`; a software runtime has one device, 0.
    /// A device may be opened several times; each opening has its own stream and observers.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`] with the reason and remedy, or a failed call.
    pub fn open(runtime: Runtime, ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let Runtime {
            hip: hip_table,
            hsa: hsa_table,
            origin,
            keep_alive,
        } = runtime;
        let explain = |error| explain(error, &origin, Path::new(KFD));
        let hsa = Hsa::start(hsa_table, &hip_table).map_err(explain)?;
        let hip_ordinal = match &origin {
            Origin::Soft { ordinal: own, .. } if ordinal == 0 => *own,
            Origin::Soft { .. } => {
                return Err(NoDevice::OrdinalOutOfRange { ordinal, count: 1 }.into());
            }
            Origin::Rocm { .. } => ordinal,
        };
        let hip = Arc::new(Hip::new(
            hip_table,
            i32::try_from(hip_ordinal).unwrap_or(i32::MAX),
        ));
        hip.init().map_err(explain)?;
        let count = hip.device_count().map_err(explain)?;
        if hip_ordinal >= count {
            return Err(NoDevice::OrdinalOutOfRange { ordinal, count }.into());
        }
        let pci = PciAddress::of_hip(&hip)?;
        let agents = hsa.agents()?;
        let agent = find_agent(&hsa, &agents, pci)?.ok_or_else(|| NoDevice::NoAgent {
            ordinal,
            pci: pci.to_string(),
        })?;
        let info = describe(&hip, &hsa, agent, pci, origin, ordinal)?;
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Self {
            stream: Stream::new(&hip, key)?,
            agent,
            pools: find_pools(&hsa, &agents, agent)?,
            faults: Arc::new(Faults::default()),
            next_module: AtomicU64::new(0),
            key,
            tick_hz: hsa.timestamp_frequency()?,
            info,
            hip,
            hsa,
            _keep_alive: keep_alive,
        }))
    }

    /// What the device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The device's default stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Has `observer` see every launch, copy and memset of this opening until the guard is dropped.
    pub fn attach(&self, observer: Arc<dyn Observer>) -> ObserverGuard {
        self.hip.observers.attach(observer)
    }

    /// Waits until all work that was given through HIP has ended.
    ///
    /// # Errors
    /// The first error of that work.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.hip.device_synchronize()
    }

    /// Sets the longest wait for this opening's stream; 60 s unless set.
    pub fn set_deadline(&self, deadline: Duration) {
        self.hip.set_deadline(deadline);
    }

    /// Sets how long a wait for this opening's stream polls before it sleeps between polls; 200 µs unless
    /// set. Whoever times steps polls to the end: a sleep is as long as a step.
    pub fn set_polling(&self, polling: Duration) {
        self.hip.set_polling(polling);
    }

    /// Free and total bytes of device memory.
    ///
    /// # Errors
    /// The runtime's answer.
    pub fn memory_info(&self) -> Result<(u64, u64), DeviceError> {
        self.hip.memory_info()
    }

    /// The first fatal error of a software GPU; `None` on hardware, which does not say.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.hip.fault()
    }

    /// A duration in timestamp ticks.
    pub(crate) fn ticks(&self, duration: Duration) -> u64 {
        let ticks = duration.as_nanos() * u128::from(self.tick_hz) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// A place on PCI, the name that HIP and HSA share for a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
}

impl core::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}",
            self.domain, self.bus, self.device
        )
    }
}

impl PciAddress {
    fn of_hip(hip: &Hip) -> Result<Self, DeviceError> {
        let get = |attribute| hip.attribute(attribute).map(i32::cast_unsigned);
        let domain = get(HIP_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let bus = get(HIP_ATTRIBUTE_PCI_BUS_ID)?;
        Ok(Self {
            domain,
            bus,
            device: get(HIP_ATTRIBUTE_PCI_DEVICE_ID)?,
        })
    }

    fn of_agent(hsa: &Hsa, agent: HsaAgent) -> Result<Self, DeviceError> {
        let bdf = hsa.agent_u32(agent, HSA_AMD_AGENT_INFO_BDFID)?;
        let domain = hsa.agent_u32(agent, HSA_AMD_AGENT_INFO_DOMAIN)?;
        Ok(Self {
            domain,
            bus: bdf >> 8 & 0xff,
            device: bdf >> 3 & 0x1f,
        })
    }
}

fn find_agent(
    hsa: &Hsa,
    agents: &[HsaAgent],
    pci: PciAddress,
) -> Result<Option<HsaAgent>, DeviceError> {
    for &agent in agents {
        let here = || {
            Ok(hsa.agent_type(agent)? == HSA_DEVICE_TYPE_GPU
                && PciAddress::of_agent(hsa, agent)? == pci)
        };
        match here() {
            Ok(true) => return Ok(Some(agent)),
            Ok(false) => {}
            // Software GPUs share the list of agents, and another one may have gone since.
            Err(DeviceError::Call { code, .. }) if code == HSA_ERROR_INVALID_AGENT.0 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The host's pools. A kernarg pool is fine-grained too, so the first other one is preferred for
/// indirect buffers. The software GPU lists one CPU agent per GPU, so the agent that stands nearest
/// before the GPU is looked at first; on ROCm the CPU agents stand before all GPUs.
fn find_pools(hsa: &Hsa, agents: &[HsaAgent], gpu: HsaAgent) -> Result<Pools, DeviceError> {
    let end = agents
        .iter()
        .position(|&agent| agent == gpu)
        .unwrap_or(agents.len());
    let mut pools = Pools::default();
    let mut kernarg_fallback = None;
    for &agent in agents[..end].iter().rev().chain(&agents[end..]) {
        if hsa.agent_type(agent)? != HSA_DEVICE_TYPE_CPU {
            continue;
        }
        for pool in hsa.pools(agent)? {
            if hsa.pool_u32(pool, HSA_POOL_INFO_SEGMENT)? != HSA_SEGMENT_GLOBAL
                || !hsa.pool_bool(pool, HSA_POOL_INFO_ALLOC_ALLOWED)?
            {
                continue;
            }
            let flags = hsa.pool_u32(pool, HSA_POOL_INFO_GLOBAL_FLAGS)?;
            if flags & HSA_POOL_FLAG_KERNARG != 0 {
                kernarg_fallback = kernarg_fallback.or(Some(pool));
            } else if flags & HSA_POOL_FLAG_FINE_GRAINED != 0 {
                pools.fine_grained = pools.fine_grained.or(Some(pool));
            }
        }
        if kernarg_fallback.is_some() {
            break;
        }
    }
    pools.kernarg = kernarg_fallback;
    pools.fine_grained = pools.fine_grained.or(kernarg_fallback);
    Ok(pools)
}

fn describe(
    hip: &Hip,
    hsa: &Hsa,
    agent: HsaAgent,
    pci: PciAddress,
    origin: Origin,
    ordinal: u32,
) -> Result<DeviceInfo, DeviceError> {
    let isa = hsa.isa_names(agent)?.into_iter().next().unwrap_or_default();
    let target = match processor(&isa) {
        Some(target) => target.to_owned(),
        None => hip
            .arch_name()?
            .as_deref()
            .and_then(processor)
            .unwrap_or("unknown")
            .to_owned(),
    };
    let name = match &origin {
        Origin::Soft { target, .. } => format!("soft:{target}"),
        Origin::Rocm { .. } => hip.name()?,
    };
    if !SUPPORTED_TARGETS.contains(&target.as_str()) {
        return Err(NoDevice::TargetUnsupported {
            ordinal,
            name,
            target,
        }
        .into());
    }
    let (driver, runtime) = hip.versions()?;
    Ok(DeviceInfo {
        name,
        target,
        compute_units: hsa.agent_u32(agent, HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT)?,
        wave_size: hsa.agent_u32(agent, HSA_AGENT_INFO_WAVEFRONT_SIZE)?,
        vram_bytes: hip.total_memory()?,
        pci: pci.to_string(),
        driver_version: version(driver),
        runtime_version: version(runtime),
        origin,
    })
}

/// `gfx1100` of `amdgcn-amd-amdhsa--gfx1100`, `gfx90a:sramecc+:xnack-` or `gfx1100`.
fn processor(isa: &str) -> Option<&str> {
    let name = isa.rsplit('-').find(|part| part.starts_with("gfx"));
    let name = name.or_else(|| isa.split("--").find(|part| part.starts_with("gfx")))?;
    name.split(':').next()
}

/// HIP encodes a version as major * 10^7 + minor * 10^5 + patch.
fn version(code: i32) -> String {
    format!(
        "{}.{}.{}",
        code / 10_000_000,
        code / 100_000 % 100,
        code % 100_000
    )
}

/// Turns an answer that means "no device" into its reason; every failure of `hsa_init` does.
fn explain(error: DeviceError, origin: &Origin, kfd: &Path) -> DeviceError {
    let DeviceError::Call {
        call, code, name, ..
    } = &error
    else {
        return error;
    };
    let no_device =
        *call == "hsa_init" || (call.starts_with("hip") && status::hip(*code).no_device);
    if !no_device || matches!(origin, Origin::Soft { .. }) {
        return error;
    }
    let answer = match code {
        0x1000.. => format!("{call} answered {code:#x} {name}"),
        _ => format!("{call} answered {code} {name}"),
    };
    diagnose(kfd, answer).into()
}

/// Why the driver cannot be used, from its device file.
fn diagnose(kfd: &Path, answer: String) -> NoDevice {
    let path = kfd.to_path_buf();
    match File::options().read(true).write(true).open(kfd) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            NoDevice::DriverAbsent { path, answer }
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            NoDevice::NoPermission { path, answer }
        }
        Err(error) => NoDevice::DriverUnusable {
            path,
            cause: error.to_string(),
            answer,
        },
        Ok(file) => match file.metadata() {
            Ok(metadata) if metadata.file_type().is_char_device() => {
                NoDevice::NoneVisible { answer }
            }
            _ => {
                let cause = "it is not a character device".to_owned();
                NoDevice::DriverUnusable {
                    path,
                    cause,
                    answer,
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{diagnose, explain, processor, version};
    use crate::error::{Api, DeviceError, NoDevice};
    use crate::load::Origin;
    use std::path::{Path, PathBuf};

    #[test]
    fn processors_are_read_from_isa_names() {
        let cases = [
            ("amdgcn-amd-amdhsa--gfx1100", Some("gfx1100")),
            ("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", Some("gfx90a")),
            ("gfx1201", Some("gfx1201")),
            ("gfx90a:sramecc+:xnack-", Some("gfx90a")),
            ("amdgcn-amd-amdhsa--gfx11-generic", Some("gfx11")),
            ("", None),
            ("spirv64", None),
        ];
        for (isa, expected) in cases {
            assert_eq!(processor(isa), expected, "{isa}");
        }
    }

    #[test]
    fn versions_are_decoded() {
        assert_eq!(version(50_221_153), "5.2.21153");
        assert_eq!(version(60_443_484), "6.4.43484");
        assert_eq!(version(0), "0.0.0");
    }

    #[test]
    fn device_files_tell_the_reason() {
        let answer = || "hsa_init answered 0x1008".to_owned();
        let path = PathBuf::from("/nonexistent/kfd");
        let absent = diagnose(&path, answer());
        assert_eq!(
            absent,
            NoDevice::DriverAbsent {
                path,
                answer: answer()
            }
        );
        let null = diagnose(Path::new("/dev/null"), answer());
        assert_eq!(null, NoDevice::NoneVisible { answer: answer() });
        let folder = diagnose(Path::new("/"), answer());
        assert!(
            matches!(folder, NoDevice::DriverUnusable { .. }),
            "{folder}"
        );
        let file = std::env::current_exe().unwrap();
        let file = diagnose(&file, answer());
        assert!(matches!(file, NoDevice::DriverUnusable { .. }), "{file}");
    }

    #[test]
    fn only_answers_that_mean_no_device_are_explained() {
        let call = |api, call, code| DeviceError::Call {
            api,
            call,
            code,
            name: "NAME",
            remedy: "remedy",
            reason: None,
        };
        let rocm = Origin::Rocm {
            hip_path: PathBuf::new(),
            hsa_path: PathBuf::new(),
        };
        let soft = Origin::Soft {
            target: "gfx1201".to_owned(),
            ordinal: 0,
        };
        let cases = [
            (call(Api::Hsa, "hsa_init", 0x1008), &rocm, true),
            (call(Api::Hip, "hipInit", 101), &rocm, true),
            (call(Api::Hip, "hipGetDeviceCount", 100), &rocm, true),
            (call(Api::Hip, "hipInit", 3), &rocm, false),
            (call(Api::Hip, "hipInit", 101), &soft, false),
            (call(Api::Hsa, "hsa_iterate_agents", 0x1008), &rocm, false),
        ];
        for (error, origin, expected) in cases {
            let before = error.to_string();
            let after = explain(error, origin, Path::new("/nonexistent/kfd"));
            assert_eq!(after.is_no_device(), expected, "{before}");
            assert_eq!(
                after.to_string().contains("/nonexistent/kfd"),
                expected,
                "{after}"
            );
        }
    }
}
