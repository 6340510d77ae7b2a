#define TPSIM_TEMPLATE template
#include "launch/precompiled_tests.h"
