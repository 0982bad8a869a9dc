//! HIP calls with results, bound to one device of one table.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{Api, DeviceError};
use crate::observe::{CopyDirection, HipCall, Observers};
use crate::status;
use crate::sys::HipTable;
use crate::sys::hip::{
    HIP_DEVICE_PROP_R0600_ARCH_OFFSET, HIP_DEVICE_PROP_R0600_BYTES, HIP_ERROR_NOT_READY,
    HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END,
    HIP_STREAM_CAPTURE_THREAD_LOCAL, HIP_STREAM_NON_BLOCKING, HIP_SUCCESS, HipDeviceAttribute,
    HipDevicePropR0600, HipFunction, HipGraph, HipGraphExec, HipModule, HipStatus, HipStream,
};

/// The HIP table, the device it talks to and the observers of that device.
///
/// HIP keeps the current device per thread, so every call that depends on it selects it first.
pub(crate) struct Hip {
    table: HipTable,
    ordinal: c_int,
    pub(crate) observers: Observers,
    /// Longest wait for a stream, nanoseconds.
    deadline_ns: AtomicU64,
    /// How long such a wait polls before it sleeps between polls, nanoseconds.
    polling_ns: AtomicU64,
    /// The first wait that ended at its deadline.
    hung: OnceLock<DeviceError>,
}

/// Longest wait for a stream unless set: far above any launch of a decode step.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long a wait polls before it sleeps between polls, unless it is set.
const POLLING: Duration = Duration::from_micros(200);

impl Hip {
    pub(crate) fn new(table: HipTable, ordinal: c_int) -> Self {
        Self {
            table,
            ordinal,
            observers: Observers::default(),
            deadline_ns: AtomicU64::new(DEADLINE.as_nanos() as u64),
            polling_ns: AtomicU64::new(POLLING.as_nanos() as u64),
            hung: OnceLock::new(),
        }
    }

    fn check(&self, call: &'static str, status: HipStatus) -> Result<(), DeviceError> {
        if status == HIP_SUCCESS {
            return Ok(());
        }
        let row = status::hip(status.0);
        let mut reason = self.take_reason();
        if reason.is_none() && !status::HIP.contains(&row) {
            reason = self.error_string(status);
        }
        let reason = reason.map(|text| super::without_call(call, text));
        let (code, name, remedy) = (status.0, row.name, row.remedy);
        Err(DeviceError::Call {
            api: Api::Hip,
            call,
            code,
            name,
            remedy,
            reason,
        })
    }

    fn error_string(&self, status: HipStatus) -> Option<String> {
        // SAFETY: the call takes any value and returns null or a static NUL-terminated string.
        let text = unsafe { (self.table.hipGetErrorString)(status) };
        if text.is_null() {
            return None;
        }
        // SAFETY: not null, so a static NUL-terminated string of the library.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }

    /// The software GPU's text about this thread's last failed call.
    pub(crate) fn take_reason(&self) -> Option<String> {
        let entry = self.table.refrain_take_reason?;
        // SAFETY: the entry writes at most `capacity` bytes at `at`, which `text` owns.
        super::text(|at, capacity| unsafe { entry(at, capacity) })
    }

    /// The software GPU's first fatal error.
    pub(crate) fn fault(&self) -> Option<String> {
        let entry = self.table.refrain_fault?;
        // SAFETY: the entry writes at most `capacity` bytes at `at`, which `text` owns.
        super::text(|at, capacity| unsafe { entry(self.ordinal, at, capacity) })
    }

    pub(crate) fn init(&self) -> Result<(), DeviceError> {
        // SAFETY: no precondition; flags must be 0.
        self.check("hipInit", unsafe { (self.table.hipInit)(0) })
    }

    pub(crate) fn device_count(&self) -> Result<u32, DeviceError> {
        let mut count: c_int = 0;
        // SAFETY: `count` outlives the call, which writes one int.
        let status = unsafe { (self.table.hipGetDeviceCount)(&raw mut count) };
        self.check("hipGetDeviceCount", status)?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Driver and runtime version as HIP encodes them.
    pub(crate) fn versions(&self) -> Result<(c_int, c_int), DeviceError> {
        let (mut driver, mut runtime) = (0, 0);
        // SAFETY: `driver` outlives the call, which writes one int.
        let status = unsafe { (self.table.hipDriverGetVersion)(&raw mut driver) };
        self.check("hipDriverGetVersion", status)?;
        // SAFETY: `runtime` outlives the call, which writes one int.
        let status = unsafe { (self.table.hipRuntimeGetVersion)(&raw mut runtime) };
        self.check("hipRuntimeGetVersion", status)?;
        Ok((driver, runtime))
    }

    /// Makes the device current on this thread.
    fn select(&self) -> Result<(), DeviceError> {
        // SAFETY: no precondition; an unknown ordinal is answered with a status.
        self.check("hipSetDevice", unsafe {
            (self.table.hipSetDevice)(self.ordinal)
        })
    }

    pub(crate) fn name(&self) -> Result<String, DeviceError> {
        let mut name = [0u8; 256];
        let len = name.len() as c_int - 1;
        // SAFETY: `name` outlives the call, which writes at most `len` bytes.
        let status =
            unsafe { (self.table.hipDeviceGetName)(name.as_mut_ptr().cast(), len, self.ordinal) };
        self.check("hipDeviceGetName", status)?;
        Ok(until_nul(&name))
    }

    pub(crate) fn attribute(&self, attribute: HipDeviceAttribute) -> Result<c_int, DeviceError> {
        let mut value: c_int = 0;
        // SAFETY: `value` outlives the call, which writes one int.
        let status =
            unsafe { (self.table.hipDeviceGetAttribute)(&raw mut value, attribute, self.ordinal) };
        self.check("hipDeviceGetAttribute", status)?;
        Ok(value)
    }

    /// `gcnArchName`, such as `gfx1100`; `None` before HIP 6.
    pub(crate) fn arch_name(&self) -> Result<Option<String>, DeviceError> {
        let Some(entry) = self.table.hipGetDevicePropertiesR0600 else {
            return Ok(None);
        };
        let mut properties = HipDevicePropR0600([0; HIP_DEVICE_PROP_R0600_BYTES]);
        // SAFETY: `properties` has the size and alignment of `hipDeviceProp_tR0600`.
        let status = unsafe { entry(&raw mut properties, self.ordinal) };
        self.check("hipGetDevicePropertiesR0600", status)?;
        let arch = &properties.0[HIP_DEVICE_PROP_R0600_ARCH_OFFSET..][..256];
        Ok(Some(until_nul(arch)))
    }

    pub(crate) fn total_memory(&self) -> Result<u64, DeviceError> {
        let mut bytes = 0usize;
        // SAFETY: `bytes` outlives the call, which writes one size_t.
        let status = unsafe { (self.table.hipDeviceTotalMem)(&raw mut bytes, self.ordinal) };
        self.check("hipDeviceTotalMem", status)?;
        Ok(bytes as u64)
    }

    /// Free and total bytes of the device.
    pub(crate) fn memory_info(&self) -> Result<(u64, u64), DeviceError> {
        self.select()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both outlive the call, which writes one size_t each.
        let status = unsafe { (self.table.hipMemGetInfo)(&raw mut free, &raw mut total) };
        self.check("hipMemGetInfo", status)?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn malloc(&self, bytes: usize) -> Result<*mut c_void, DeviceError> {
        self.select()?;
        let mut pointer = null_mut();
        // SAFETY: `pointer` outlives the call, which writes one address.
        let status = unsafe { (self.table.hipMalloc)(&raw mut pointer, bytes) };
        self.check("hipMalloc", status)?;
        Ok(pointer)
    }

    pub(crate) fn host_malloc(&self, bytes: usize, flags: u32) -> Result<*mut c_void, DeviceError> {
        self.select()?;
        let mut pointer = null_mut();
        // SAFETY: `pointer` outlives the call, which writes one address.
        let status = unsafe { (self.table.hipHostMalloc)(&raw mut pointer, bytes, flags) };
        self.check("hipHostMalloc", status)?;
        Ok(pointer)
    }

    /// # Safety
    /// `pointer` came from [`Hip::malloc`], was not freed, and nothing uses it any more.
    pub(crate) unsafe fn free(&self, pointer: *mut c_void) -> Result<(), DeviceError> {
        if self.keeps() {
            return Ok(());
        }
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check("hipFree", unsafe { (self.table.hipFree)(pointer) })
    }

    /// # Safety
    /// `pointer` came from [`Hip::host_malloc`], was not freed, and nothing uses it any more.
    pub(crate) unsafe fn host_free(&self, pointer: *mut c_void) -> Result<(), DeviceError> {
        if self.keeps() {
            return Ok(());
        }
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check("hipHostFree", unsafe { (self.table.hipHostFree)(pointer) })
    }

    /// Names the allocation at `pointer` for the software GPU's messages; nothing elsewhere.
    pub(crate) fn set_name(&self, pointer: *const c_void, name: &str) -> Result<(), DeviceError> {
        let Some(entry) = self.table.refrain_set_name else {
            return Ok(());
        };
        // SAFETY: the entry reads `name.len()` bytes at `name`, and only looks `pointer` up.
        let status = unsafe { entry(pointer, name.as_ptr(), name.len()) };
        self.check("refrain_set_name", status)
    }

    pub(crate) fn stream_create(&self) -> Result<HipStream, DeviceError> {
        self.select()?;
        let mut stream = null_mut();
        // SAFETY: `stream` outlives the call, which writes one handle.
        let status = unsafe {
            (self.table.hipStreamCreateWithFlags)(&raw mut stream, HIP_STREAM_NON_BLOCKING)
        };
        self.check("hipStreamCreateWithFlags", status)?;
        Ok(stream)
    }

    /// # Safety
    /// `stream` came from [`Hip::stream_create`] and was not destroyed.
    pub(crate) unsafe fn stream_destroy(&self, stream: HipStream) -> Result<(), DeviceError> {
        if self.keeps() {
            return Ok(());
        }
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check("hipStreamDestroy", unsafe {
            (self.table.hipStreamDestroy)(stream)
        })
    }

    /// Whether all work of the stream has ended.
    ///
    /// # Safety
    /// `stream` is a live stream of this device.
    pub(crate) unsafe fn stream_idle(&self, stream: HipStream) -> Result<bool, DeviceError> {
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        match unsafe { (self.table.hipStreamQuery)(stream) } {
            HIP_ERROR_NOT_READY => Ok(false),
            status => self.check("hipStreamQuery", status).map(|()| true),
        }
    }

    /// The error of the first wait that ended at its deadline, if one did.
    pub(crate) fn hung(&self) -> Option<&DeviceError> {
        self.hung.get()
    }

    /// Keeps the first such error, and gives it back.
    pub(crate) fn hang(&self, error: DeviceError) -> DeviceError {
        self.hung.get_or_init(|| error).clone()
    }

    /// Whether giving something back would block for ever: HIP waits for the device first, and work
    /// on it does not end. The process's end gives it back. The software GPU does not block there.
    fn keeps(&self) -> bool {
        self.hung.get().is_some() && self.table.refrain_fault.is_none()
    }

    /// How long a wait for a stream polls before it sleeps between polls.
    pub(crate) fn polling(&self) -> Duration {
        Duration::from_nanos(self.polling_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_polling(&self, polling: Duration) {
        let ns = u64::try_from(polling.as_nanos()).unwrap_or(u64::MAX);
        self.polling_ns.store(ns, Ordering::Relaxed);
    }

    /// Longest wait for a stream.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_deadline(&self, deadline: Duration) {
        let ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn device_synchronize(&self) -> Result<(), DeviceError> {
        self.select()?;
        // SAFETY: no precondition.
        self.check("hipDeviceSynchronize", unsafe {
            (self.table.hipDeviceSynchronize)()
        })
    }

    /// Copies on `stream`, ordered after its earlier work, and waits for the end: pageable host
    /// memory may be read or written as long as an asynchronous copy runs.
    ///
    /// # Safety
    /// `dst` and `src` are valid for `bytes` bytes in the direction given, and `stream` is live.
    pub(crate) unsafe fn copy(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        bytes: usize,
        direction: CopyDirection,
        stream: HipStream,
    ) -> Result<(), DeviceError> {
        self.select()?;
        let kind = direction.hip_kind();
        // SAFETY: the caller vouches for both ranges and the stream.
        let status = unsafe { (self.table.hipMemcpyAsync)(dst, src, bytes, kind, stream) };
        self.check("hipMemcpyAsync", status)?;
        let (dst, src, bytes) = (dst.addr() as u64, src.addr() as u64, bytes as u64);
        self.observers.tell(&HipCall::Copy {
            dst,
            src,
            bytes,
            direction,
        });
        // SAFETY: the caller vouches for the stream.
        self.check("hipStreamSynchronize", unsafe {
            (self.table.hipStreamSynchronize)(stream)
        })
    }

    /// # Safety
    /// `dst` is device-visible memory valid for `bytes` bytes, and `stream` is live.
    pub(crate) unsafe fn memset(
        &self,
        dst: *mut c_void,
        value: u8,
        bytes: usize,
        stream: HipStream,
    ) -> Result<(), DeviceError> {
        self.select()?;
        // SAFETY: the caller vouches for the range and the stream.
        let status = unsafe { (self.table.hipMemsetAsync)(dst, c_int::from(value), bytes, stream) };
        self.check("hipMemsetAsync", status)?;
        let (dst, bytes) = (dst.addr() as u64, bytes as u64);
        self.observers.tell(&HipCall::Memset { dst, value, bytes });
        Ok(())
    }

    /// # Safety
    /// `image` is a whole code object.
    pub(crate) unsafe fn module_load(&self, image: &[u8]) -> Result<HipModule, DeviceError> {
        self.select()?;
        let mut module = null_mut();
        // SAFETY: HIP takes the size from the ELF header of the image, which the caller vouches is
        // whole; `module` outlives the call.
        let status =
            unsafe { (self.table.hipModuleLoadData)(&raw mut module, image.as_ptr().cast()) };
        self.check("hipModuleLoadData", status)?;
        Ok(module)
    }

    /// # Safety
    /// `module` came from [`Hip::module_load`], was not unloaded, and none of its functions is used.
    pub(crate) unsafe fn module_unload(&self, module: HipModule) -> Result<(), DeviceError> {
        if self.keeps() {
            return Ok(());
        }
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check("hipModuleUnload", unsafe {
            (self.table.hipModuleUnload)(module)
        })
    }

    /// # Safety
    /// `module` is a live module of this device.
    pub(crate) unsafe fn module_function(
        &self,
        module: HipModule,
        name: &CStr,
    ) -> Result<HipFunction, DeviceError> {
        self.select()?;
        let mut function = null_mut();
        // SAFETY: the caller vouches for the module; `name` ends with NUL; `function` outlives it.
        let status =
            unsafe { (self.table.hipModuleGetFunction)(&raw mut function, module, name.as_ptr()) };
        self.check("hipModuleGetFunction", status)?;
        Ok(function)
    }

    /// Launches with the exact kernarg bytes of `call`, which observers then see.
    ///
    /// # Safety
    /// `function` belongs to a live module, `stream` is live, and `call` describes that function.
    pub(crate) unsafe fn launch(
        &self,
        function: HipFunction,
        stream: HipStream,
        call: &HipCall<'_>,
    ) -> Result<(), DeviceError> {
        let HipCall::Launch {
            grid,
            block,
            lds,
            kernarg,
            ..
        } = call
        else {
            return Ok(());
        };
        self.select()?;
        let mut bytes = kernarg.len();
        let mut extra = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            kernarg.as_ptr().cast_mut().cast(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut bytes).cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        // SAFETY: the caller vouches for the handles. `extra` is the documented list, its buffer
        // and size outlive the call, and HIP copies the kernargs before it returns.
        let status = unsafe {
            (self.table.hipModuleLaunchKernel)(
                function,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                *lds,
                stream,
                null_mut(),
                extra.as_mut_ptr(),
            )
        };
        self.check("hipModuleLaunchKernel", status)?;
        self.observers.tell(call);
        Ok(())
    }

    /// Begins to capture what is put on the stream instead of executing it.
    ///
    /// # Safety
    /// `stream` is a live stream of this device.
    pub(crate) unsafe fn capture_begin(&self, stream: HipStream) -> Result<(), DeviceError> {
        let call = "hipStreamBeginCapture";
        let entry = self.table.hipStreamBeginCapture.ok_or(absent(call))?;
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check(call, unsafe {
            entry(stream, HIP_STREAM_CAPTURE_THREAD_LOCAL)
        })
    }

    /// Ends a capture and gives its graph.
    ///
    /// # Safety
    /// `stream` is a live stream of this device.
    pub(crate) unsafe fn capture_end(&self, stream: HipStream) -> Result<HipGraph, DeviceError> {
        let call = "hipStreamEndCapture";
        let entry = self.table.hipStreamEndCapture.ok_or(absent(call))?;
        self.select()?;
        let mut graph = null_mut();
        // SAFETY: the caller vouches for the stream; `graph` outlives the call.
        self.check(call, unsafe { entry(stream, &raw mut graph) })?;
        Ok(graph)
    }

    /// Makes an executable of a graph.
    ///
    /// # Safety
    /// `graph` came from [`Hip::capture_end`] and was not destroyed.
    pub(crate) unsafe fn graph_instantiate(
        &self,
        graph: HipGraph,
    ) -> Result<HipGraphExec, DeviceError> {
        let call = "hipGraphInstantiate";
        let entry = self.table.hipGraphInstantiate.ok_or(absent(call))?;
        self.select()?;
        let mut exec = null_mut();
        // SAFETY: the caller vouches for the graph; `exec` outlives the call, and null addresses
        // ask for neither the node of an error nor a log.
        self.check(call, unsafe {
            entry(&raw mut exec, graph, null_mut(), null_mut(), 0)
        })?;
        Ok(exec)
    }

    /// Launches a graph of `launches` kernels, which observers then see.
    ///
    /// # Safety
    /// `exec` came from [`Hip::graph_instantiate`] and was not destroyed, the modules of its kernels
    /// are loaded, and `stream` is live.
    pub(crate) unsafe fn graph_launch(
        &self,
        exec: HipGraphExec,
        stream: HipStream,
        launches: usize,
    ) -> Result<(), DeviceError> {
        let call = "hipGraphLaunch";
        let entry = self.table.hipGraphLaunch.ok_or(absent(call))?;
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check(call, unsafe { entry(exec, stream) })?;
        self.observers.tell(&HipCall::Graph { launches });
        Ok(())
    }

    /// # Safety
    /// `exec` came from [`Hip::graph_instantiate`], was not destroyed, and does not run.
    pub(crate) unsafe fn graph_exec_destroy(&self, exec: HipGraphExec) -> Result<(), DeviceError> {
        let call = "hipGraphExecDestroy";
        let entry = self.table.hipGraphExecDestroy.ok_or(absent(call))?;
        if self.keeps() {
            return Ok(());
        }
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check(call, unsafe { entry(exec) })
    }

    /// # Safety
    /// `graph` came from [`Hip::capture_end`] and was not destroyed.
    pub(crate) unsafe fn graph_destroy(&self, graph: HipGraph) -> Result<(), DeviceError> {
        let call = "hipGraphDestroy";
        let entry = self.table.hipGraphDestroy.ok_or(absent(call))?;
        self.select()?;
        // SAFETY: the caller's promise is the call's only precondition.
        self.check(call, unsafe { entry(graph) })
    }
}

const fn absent(call: &'static str) -> DeviceError {
    DeviceError::EntryMissing { call }
}

/// The text before the first NUL.
fn until_nul(bytes: &[u8]) -> String {
    let len = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
