"""Prints the opcode enumerations of an installed tinygrad wheel: set, enumeration, number, name."""
try:
    from tinygrad.runtime.autogen.amd.rdna3 import enum as rdna3
    from tinygrad.runtime.autogen.amd.rdna4 import enum as rdna4
except ImportError as error:
    print("absent", error)
    raise SystemExit(0)
for generation, module in (("gfx11", rdna3), ("gfx12", rdna4)):
    for name in dir(module):
        if name.endswith("Op"):
            for row in getattr(module, name):
                print(generation, name, row.value, row.name.lower())
