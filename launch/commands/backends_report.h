// What `tpsim backends` says about one device and model, from the list of backends that decides in every
// other command.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/selection/support_matrix.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"

namespace tpsim::launch {

struct BackendsReport {
  struct Runs {
    std::string backend;
    std::uint32_t page_size = 1;
    std::string kv_cache_dtype;
    bool prefill_only = false;          // `decode` has those that it can be paired with
    std::vector<std::string> decode{};  // "triton", "flashinfer"
  };
  struct Cannot {
    std::string backend;
    std::string reason;  // the sentence of `tpsim run --attention-backend`
  };
  std::string hardware;
  std::string model;
  std::string chosen;  // where none is named; empty: nothing runs
  std::string reason;
  std::vector<std::string> notes;  // what the choice forces: page size, KV format
  std::vector<Runs> can_run;       // the chosen one first
  std::vector<Cannot> cannot;
};
// `args`: --kv-cache-dtype and --page-size. Deterministic.
BackendsReport report_backends(const ServerArgs& args, const proto::HardwareProfile& hardware,
                               const rank::ModelConfig& model);

// What is chosen on a device for models with MHA and with MLA, whatever else they need.
struct DefaultBackend {
  std::string hardware;
  bool mla = false;
  std::string backend;  // empty: nothing runs
  std::string reason;
};
DefaultBackend default_backend(const proto::HardwareProfile& hardware, bool mla);

// The machine-readable forms.
nlohmann::ordered_json to_json(const attention::SupportMatrix& matrix);
nlohmann::ordered_json to_json(const BackendsReport& report);
nlohmann::ordered_json to_json(const DefaultBackend& choice);

}  // namespace tpsim::launch
