#include "launch/serve/refused_routes.h"

#include <vector>

namespace tpsim::launch {
namespace {

struct Refused {
  std::string_view why;
  std::vector<std::string_view> paths;  // those that end with "/" are prefixes
};

const std::vector<Refused> kRefused = {
    {"answers other than tokens (embeddings, classes, scores) are not simulated",
     {"/encode", "/classify", "/v1/embeddings", "/v1/classify", "/v1/score", "/v1/rerank"}},
    {"is a protocol that is not spoken here; use /v1/chat/completions or /generate",
     {"/v1/responses", "/v1/responses/", "/v1/messages", "/v1/messages/count_tokens", "/vertex_generate",
      "/api/chat", "/api/generate", "/api/tags", "/api/show"}},
    {"audio is not simulated", {"/v1/audio/transcriptions"}},
    {"sessions are not simulated; send the whole prompt, its prefix is found in the cache",
     {"/open_session", "/close_session"}},
    {"there is no GPU here to profile; `tpsim run --trace-out FILE` writes what the simulated ranks do",
     {"/start_profile", "/stop_profile", "/set_trace_level"}},
    {"nobody routes tokens to experts here; --expert-distribution says how they are spread",
     {"/start_expert_distribution_record", "/stop_expert_distribution_record",
      "/dump_expert_distribution_record"}},
    {"there are no weights here that could be changed or sent",
     {"/update_weights_from_disk", "/update_weights_from_tensor", "/update_weights_from_distributed",
      "/update_weights_from_ipc", "/update_weight_version", "/init_weights_update_group",
      "/destroy_weights_update_group", "/init_weights_send_group_for_remote_instance",
      "/send_weights_to_remote_instance", "/get_remote_instance_transfer_engine_info",
      "/remote_instance_transfer_engine_info", "/get_weights_by_name", "/weights_checker",
      "/release_memory_occupation", "/resume_memory_occupation"}},
    {"is deprecated; use /model_info", {"/get_weight_version", "/weight_version"}},
    {"LoRA adapters are not simulated",
     {"/load_lora_adapter", "/load_lora_adapter_from_tensors", "/unload_lora_adapter"}},
    {"host caches of KV are not simulated", {"/clear_hicache_storage_backend", "/hicache/"}},
    {"speculation from a corpus of texts is not simulated",
     {"/add_external_corpus", "/remove_external_corpus", "/list_external_corpora"}},
    {"the server's state cannot be changed while it runs; start it with other flags",
     {"/set_internal_state", "/configure_logging", "/slow_down", "/freeze_gc", "/pause_generation",
      "/continue_generation", "/dumper/"}},
    {"answers have no tool calls and no reasoning to be parsed",
     {"/parse_function_call", "/separate_reasoning"}},
};

}  // namespace

std::optional<RefusedRoute> find_refused_route(std::string_view path) {
  for (const Refused& refused : kRefused) {
    for (const std::string_view route : refused.paths) {
      if (route.ends_with('/') ? path.starts_with(route) : path == route)
        return RefusedRoute{.path = route, .why = refused.why};
    }
  }
  return std::nullopt;
}

}  // namespace tpsim::launch
