// The flags of run, compare and the other commands by subject: one file each in this folder, which declares
// the flags of its group of the help and checks what needs more than one of them. A new flag is a field of
// ServerArgs and a declaration in the file of its subject; launch/server_args.cc puts the subjects together.
#pragma once

#include "launch/flag_set.h"
#include "launch/server_args.h"

namespace tpsim::launch {

// Model, GPUs and how they share it (deployment_flags.cc).
void declare_deployment(FlagSet& flags, ServerArgs& args);
// What one of the executors needs or cannot do.
void check_executor(const ServerArgs& args);

// Backends, KV cache and weights (attention_flags.cc); `compare` takes a list of backends.
void declare_attention(FlagSet& flags, ServerArgs& args, bool compare);
// Pages and format of the KV cache alone.
void declare_cache(FlagSet& flags, ServerArgs& args);

// Who drafts, and how much of it is right (speculation_flags.cc).
void declare_speculation(FlagSet& flags, ServerArgs& args);

// Pools, batches and the queue, priorities among them (batch_flags.cc, priority_flags.cc, graph_flags.cc).
void declare_batches(FlagSet& flags, ServerArgs& args);
void declare_priorities(FlagSet& flags, ServerArgs& args);
void check_priorities(const ServerArgs& args);
void declare_graphs(FlagSet& flags, ServerArgs& args);
void check_graphs(const ServerArgs& args);

// Images: their encoder, and those of a dataset (image_flags.cc).
void declare_image_server(FlagSet& flags, ServerArgs& args);
void declare_image_dataset(FlagSet& flags, ServerArgs& args);
void check_images(const ServerArgs& args);

// Traces, datasets and arrivals (load_flags.cc).
void declare_load(FlagSet& flags, ServerArgs& args);
void check_load(const ServerArgs& args);

// Service levels, reports and logs (output_flags.cc).
void declare_service_levels(FlagSet& flags, ServerArgs& args);
void check_service_levels(const ServerArgs& args);
void declare_output(FlagSet& flags, ServerArgs& args);
// --log-level, --no-progress and, of a command that prints a table, --quiet.
void declare_logging(FlagSet& flags, ServerArgs& args, bool prints_table = true);
// --trace-out and its window.
void declare_trace(FlagSet& flags, ServerArgs& args);
void check_trace(const ServerArgs& args);
// --checkpoint and --resume.
void declare_checkpoints(FlagSet& flags, ServerArgs& args);
void check_checkpoints(const ServerArgs& args, bool compare);

}  // namespace tpsim::launch
