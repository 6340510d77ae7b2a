// The arguments of a server as its log prints them: Python's text of a dataclass,
// "model_path='llama', tp_size=1, quantization=None, …)".
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

// `text`: what follows "ServerArgs(". Texts, numbers, truths and None become JSON's; lists and whatever else
// is left out. Throws UserError at `place` for a text without its end.
nlohmann::json read_server_args(std::string_view text, const scheduler::Place& place);

}  // namespace tpsim::launch
