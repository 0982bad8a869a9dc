"""Prints PM4 and HSA constants of an installed tinygrad, one per line, for tests/tinygrad.rs."""

import builtins
import sys

try:
    import tinygrad.runtime.autogen.hsa as hsa
    from tinygrad.runtime.autogen.am import pm4_nv, regs, soc_11, soc_12
except Exception as reason:  # absent, or another layout: the caller decides what that means
    print("absent", type(reason).__name__, str(reason).replace("\n", " "))
    sys.exit(0)

builtins.unsigned = int  # the generated field macros use C's name

# Segment 0 of the graphics block starts at dword 0x1260.
for table in ("gc_11_0_0", "gc_11_5_0", "gc_12_0_0"):
    for name, (offset, segment, fields) in getattr(regs, table).items():
        if name.startswith("regCOMPUTE_") and segment == 0:
            short = name[len("regCOMPUTE_"):]
            print("reg", table, short, offset + 0x1260)
            for field, (low, high) in fields.items():
                print("field", table, short, field, low, high)

for name in dir(pm4_nv):
    value = getattr(pm4_nv, name)
    if not name.startswith("PACKET3_"):
        continue
    short = name[len("PACKET3_"):]
    if isinstance(value, int):
        print("const", short, value)
    elif callable(value):
        try:
            print("mask", short, value(0xFFFFFFFF), value(1))
        except Exception:
            pass  # macros with several arguments

for table, soc in (("11", soc_11), ("12", soc_12)):
    for value, name in soc.enum_VGT_EVENT_TYPE.items():
        print("event", table, name, value)

for name in ("amd_queue_v2_t", "amd_signal_t", "hsa_kernel_dispatch_packet_t",
             "hsa_barrier_and_packet_t", "hsa_agent_dispatch_packet_t", "hsa_queue_t"):
    struct = getattr(hsa, name)
    for field in struct._real_fields_:
        print("slot", name, field[0], field[2])
