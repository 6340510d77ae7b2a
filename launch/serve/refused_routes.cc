#include "launch/serve/refused_routes.h"

#include <algorithm>
#include <iterator>

namespace tpsim::launch {
namespace {

constexpr std::string_view kWeights = "there are no weights here that could be changed or sent";
constexpr std::string_view kProfile =
    "there is no GPU here to profile; `tpsim run --trace-out FILE` writes what the simulated ranks do";
constexpr std::string_view kEmbedding =
    "answers other than tokens (embeddings, classes, scores) are not simulated";
constexpr std::string_view kLora = "LoRA adapters are not simulated";
constexpr std::string_view kSession =
    "sessions are not simulated; send the whole prompt, its prefix is found in the cache";
constexpr std::string_view kHostCache = "host caches of KV are not simulated";
constexpr std::string_view kExperts =
    "nobody routes tokens to experts here; --expert-distribution says how they are spread";
constexpr std::string_view kOtherProtocol =
    "is a protocol that is not spoken here; use /v1/chat/completions or /generate";
constexpr std::string_view kState =
    "the server's state cannot be changed while it runs; start it with other flags";
constexpr std::string_view kParsers = "answers have no tool calls and no reasoning to be parsed";
constexpr std::string_view kCorpus = "speculation from a corpus of texts is not simulated";
constexpr std::string_view kDeprecated = "is deprecated; use /model_info";

// Those that end with "/" are prefixes.
constexpr RefusedRoute kRefused[] = {
    {"/encode", kEmbedding},
    {"/classify", kEmbedding},
    {"/v1/embeddings", kEmbedding},
    {"/v1/classify", kEmbedding},
    {"/v1/score", kEmbedding},
    {"/v1/rerank", kEmbedding},
    {"/v1/responses", kOtherProtocol},
    {"/v1/responses/", kOtherProtocol},
    {"/v1/messages", kOtherProtocol},
    {"/v1/messages/count_tokens", kOtherProtocol},
    {"/v1/audio/transcriptions", "audio is not simulated"},
    {"/vertex_generate", kOtherProtocol},
    {"/api/chat", kOtherProtocol},
    {"/api/generate", kOtherProtocol},
    {"/api/tags", kOtherProtocol},
    {"/api/show", kOtherProtocol},
    {"/open_session", kSession},
    {"/close_session", kSession},
    {"/start_profile", kProfile},
    {"/stop_profile", kProfile},
    {"/set_trace_level", kProfile},
    {"/start_expert_distribution_record", kExperts},
    {"/stop_expert_distribution_record", kExperts},
    {"/dump_expert_distribution_record", kExperts},
    {"/update_weights_from_disk", kWeights},
    {"/update_weights_from_tensor", kWeights},
    {"/update_weights_from_distributed", kWeights},
    {"/update_weights_from_ipc", kWeights},
    {"/update_weight_version", kWeights},
    {"/init_weights_update_group", kWeights},
    {"/destroy_weights_update_group", kWeights},
    {"/init_weights_send_group_for_remote_instance", kWeights},
    {"/send_weights_to_remote_instance", kWeights},
    {"/get_remote_instance_transfer_engine_info", kWeights},
    {"/remote_instance_transfer_engine_info", kWeights},
    {"/get_weights_by_name", kWeights},
    {"/weights_checker", kWeights},
    {"/release_memory_occupation", kWeights},
    {"/resume_memory_occupation", kWeights},
    {"/get_weight_version", kDeprecated},
    {"/weight_version", kDeprecated},
    {"/load_lora_adapter", kLora},
    {"/load_lora_adapter_from_tensors", kLora},
    {"/unload_lora_adapter", kLora},
    {"/clear_hicache_storage_backend", kHostCache},
    {"/hicache/", kHostCache},
    {"/add_external_corpus", kCorpus},
    {"/remove_external_corpus", kCorpus},
    {"/list_external_corpora", kCorpus},
    {"/set_internal_state", kState},
    {"/configure_logging", kState},
    {"/slow_down", kState},
    {"/freeze_gc", kState},
    {"/pause_generation", kState},
    {"/continue_generation", kState},
    {"/dumper/", kState},
    {"/parse_function_call", kParsers},
    {"/separate_reasoning", kParsers},
};

}  // namespace

const RefusedRoute* find_refused_route(std::string_view path) {
  const auto found =
      std::find_if(std::begin(kRefused), std::end(kRefused), [path](const RefusedRoute& route) {
        return route.path.ends_with('/') ? path.starts_with(route.path) : path == route.path;
      });
  return found == std::end(kRefused) ? nullptr : found;
}

}  // namespace tpsim::launch
