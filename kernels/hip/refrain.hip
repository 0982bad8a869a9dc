// One translation unit: a code object per target holds every kernel.

#include "attention.hip"
#include "draw.hip"
#include "elementwise.hip"
#include "embed.hip"
#include "gemv.hip"
#include "kv.hip"
#include "moe.hip"
#include "norm.hip"
#include "prepare.hip"
#include "recurrent.hip"
#include "rope.hip"
#include "sample.hip"
