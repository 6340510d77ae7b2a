#include "attention/registry.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "attention/hybrid_backend.h"
#include "proto/base/error.h"
#include "proto/base/nearest.h"

namespace tpsim::attention {
namespace {

template <typename Where>
std::string names_where(Where where) {
  std::string names;
  for (const BackendDescription* backend : backend_list()) {
    if (!where(*backend)) continue;
    if (!names.empty()) names += ", ";
    names += backend->row.name;
  }
  return names;
}

std::string implemented_names() {
  return names_where([](const BackendDescription& backend) { return backend.implemented(); });
}

void check_one(const CombinationRequest& request, const std::string& name, bool decode) {
  const BackendDescription& backend = find_backend(name, request.flag);
  const BackendRow& row = backend.row;
  const char* role = decode ? "decode" : "prefill";
  if (!backend.implemented()) {
    throw_user_error("{} {}: this backend of SGLang is not implemented in tpsim yet; use one of {}",
                     request.flag, name, implemented_names());
  }
  if (decode && row.prefill_only) {
    throw_user_error("{} {}: prefill only; name another backend for decode, as in {}+flashinfer",
                     request.flag, name, name);
  }
  if (!row.generations.contains(request.generation)) {
    throw_user_error("{} {}: needs a GPU of {}, and {} is {}; use {}", request.flag, name,
                     row.generations.names(), request.gpu, to_string(request.generation),
                     choose_backend({.generation = request.generation, .mla = request.mla}).backend);
  }
  if (request.mla ? !row.has_mla : !row.has_mha) {
    throw_user_error("{} {}: has no {} form", request.flag, name, request.mla ? "MLA" : "MHA");
  }
  if (!request.mla && request.sliding_window && row.sliding_window == Support::kNo) {
    throw_user_error(
        "{} {}: has no sliding-window attention, which this model's layers need ({}); use one of {}",
        request.flag, name, role, names_where([](const BackendDescription& other) {
          return other.implemented() && other.row.sliding_window != Support::kNo;
        }));
  }
  // Any page size can be expanded to tokens before the kernel, but for kernels that need theirs.
  const PageSizes& pages = request.mla ? row.mla_page_sizes : row.mha_page_sizes;
  const bool fixed = !pages.any() && (request.mla || !pages.one());
  if (fixed && !pages.contains(request.page_size)) {
    throw_user_error("--page-size {}: {} ({}) works on pages of {} tokens only", request.page_size, name,
                     role, pages.text());
  }
  const Support fp8 = request.mla ? row.mla_fp8 : row.mha_fp8;
  const bool is_fp8 =
      request.kv_format == NumberFormat::kFp8E4M3 || request.kv_format == NumberFormat::kFp8E5M2;
  if (is_fp8 && fp8 == Support::kNo) {
    throw_user_error(
        "--kv-cache-dtype fp8: {} cannot read an fp8 KV cache ({}); use --kv-cache-dtype auto, or fa3 or "
        "flashinfer",
        name, role);
  }
}

std::unique_ptr<AttentionBackend> create_one(const std::string& name, const proto::HardwareProfile& profile,
                                             std::uint32_t page_size) {
  const BackendDescription& backend = find_backend(name, "--attention-backend");
  if (backend.implemented()) return backend.create(profile, page_size);
  throw_user_error(
      "--attention-backend {}: this backend of SGLang is not implemented in tpsim yet; use one of {}", name,
      implemented_names());
}

}  // namespace

const BackendDescription& find_backend(const std::string& name, const std::string& flag) {
  std::vector<std::string_view> implemented;
  for (const BackendDescription* backend : backend_list()) {
    if (backend->row.name == name) return *backend;
    if (backend->implemented()) implemented.push_back(backend->row.name);
  }
  throw_user_error("{} {}: unknown attention backend{} Implemented are {}", flag, name,
                   nearest(name, implemented).empty() ? "." : did_you_mean(name, implemented),
                   implemented_names());
}

BackendPair parse_backend_pair(const std::string& spec, const std::string& flag) {
  const std::size_t plus = spec.find('+');
  BackendPair pair{spec.substr(0, plus), plus == std::string::npos ? spec : spec.substr(plus + 1)};
  find_backend(pair.prefill, flag);
  find_backend(pair.decode, flag);
  return pair;
}

void check_combination(const CombinationRequest& request) {
  check_one(request, request.pair.prefill, false);
  check_one(request, request.pair.decode, true);
}

AutomaticChoice choose_backend(const Selection& selection) {
  std::string_view wanted;  // SGLang's default, where tpsim has to take another
  for (const BackendDescription* backend : backend_list()) {
    const std::string_view reason = backend->chosen_for == nullptr ? "" : backend->chosen_for(selection);
    if (reason.empty()) continue;
    if (backend->implemented()) return {std::string(backend->row.name), std::string(reason)};
    wanted = backend->row.name;
    break;
  }
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    if (!backend->implemented() || !row.generations.contains(selection.generation)) continue;
    if (selection.mla ? !row.has_mla : !row.has_mha) continue;
    return {
        std::string(row.name),
        fmt::format("SGLang's default {} is not implemented in tpsim; {} is the nearest", wanted, row.name)};
  }
  throw_user_error("--attention-backend: no backend of tpsim runs an {} model on a device of kind {}",
                   selection.mla ? "MLA" : "MHA", to_string(selection.generation));
}

std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size) {
  const BackendPair pair = parse_backend_pair(spec, "--attention-backend");
  if (pair.prefill == pair.decode) return create_one(pair.prefill, profile, page_size);
  return std::make_unique<HybridAttnBackend>(create_one(pair.prefill, profile, page_size),
                                             create_one(pair.decode, profile, page_size));
}

}  // namespace tpsim::attention
