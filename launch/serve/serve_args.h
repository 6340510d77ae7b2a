// `tpsim serve`: a deployment on the wall clock, for clients that come when they like; its flags, checked one
// by one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/cli/action.h"
#include "launch/cli/flag_set.h"
#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/serve/live_args.h"
#include "launch/serve/protocol/answer_format.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

struct ServeArgs : LiveArgs {
  ServerArgs server;
  std::string api_key, admin_api_key;  // empty: none is asked for
  std::string tokenizer_path;          // empty: the model's folder
  FormatOptions format;
  std::uint32_t default_output_tokens = 256;
  std::optional<std::uint32_t> max_output_tokens;
  std::uint32_t max_queued_requests = 0;  // 0: any number
  std::uint32_t max_prompts_per_call = 4096;

  std::string model_name() const { return served_model_name.empty() ? server.model_path : served_model_name; }
};

// Declares them in `flags`; they are read into `args`, which must outlive `flags`.
void declare_serve_flags(FlagSet& flags, ServeArgs& args);
// After all were read. Throws UserError.
void check_serve_args(const ServeArgs& args);
// What --front-end comes to: "text", "ids" or "none"; and what the simulated HTTP server and tokenizer of
// SGLang take by it on `host`.
std::string front_end_kind(const ServeArgs& args);
scheduler::FrontEndConfig serve_front_end(const ServeArgs& args, const Deployment& deployment);

// `session`, `command` and `action` must outlive the action.
void add_serve_command(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
