#define TPSIM_TEMPLATE template
#include "launch/precompiled.h"
