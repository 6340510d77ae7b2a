// Ctrl-C and SIGTERM ask the run to stop and to report what it has; a second Ctrl-C ends the process at once.
#pragma once

namespace tpsim::launch {

// Installs the handlers, for the whole process.
void catch_interrupts();

// True once SIGINT or SIGTERM came.
bool interrupted();

}  // namespace tpsim::launch
