// `tpsim backends`: what each attention backend can do, and which one is chosen where none is named.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "launch/commands.h"
#include "launch/flag_set.h"
#include "launch/server_args.h"
#include "launch/standard_output.h"
#include "proto/base/error.h"
#include "rank/model/hardware.h"
#include "rank/model/model_config.h"

namespace tpsim::launch {

namespace {

using attention::BackendDescription;
using attention::BackendRow;
using Cells = std::vector<std::string>;

attention::GpuGeneration generation_of(const proto::HardwareProfile& hardware) {
  return attention::parse_gpu_generation(hardware.architecture()).value();
}

std::string yes_no(bool yes) { return yes ? "yes" : "-"; }

void print_table(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    print(fmt::format("{}\n", line));
  }
}

Cells cells_of(const BackendDescription& backend) {
  const BackendRow& row = backend.row;
  return {std::string(row.name),
          backend.implemented() ? "yes" : "not yet",
          row.generations.empty() ? "-" : row.generations.names(),
          row.prefill_only ? "prefill" : "both",
          yes_no(row.supports_cuda_graph),
          row.has_mha ? row.mha_page_sizes.text() : "-",
          yes_no(row.has_mha && row.mha_fp8 != attention::Support::kNo),
          yes_no(row.has_mha && row.sliding_window != attention::Support::kNo),
          row.has_mla ? row.mla_page_sizes.text() : "-",
          yes_no(row.has_mla && row.mla_fp8 != attention::Support::kNo)};
}

void print_matrix(const std::optional<proto::HardwareProfile>& hardware) {
  std::vector<Cells> rows = {{"backend", "in tpsim", "GPUs", "for", "CUDA graph", "MHA pages", "MHA fp8",
                              "window", "MLA pages", "MLA fp8"}};
  if (hardware) rows.front().push_back("on " + hardware->name());
  for (const BackendDescription* backend : attention::backend_list()) {
    Cells cells = cells_of(*backend);
    if (hardware) cells.push_back(yes_no(backend->row.generations.contains(generation_of(*hardware))));
    rows.push_back(std::move(cells));
  }
  print_table(rows);
  print(
      "\nPages: sizes that the kernels read natively; others are read token by token. Any two backends that "
      "are\n"
      "\"yes\" in tpsim make a hybrid pair: --prefill-attention-backend A --decode-attention-backend B, or "
      "A+B\n"
      "in `tpsim compare --attention-backends`.\n");
}

void print_choice(const proto::HardwareProfile& hardware, const std::optional<rank::ModelConfig>& model) {
  const attention::AutomaticChoice choice =
      attention::choose_backend({.generation = generation_of(hardware)});
  print(fmt::format("{}{}: {} ({})\n", hardware.name(), model ? ", " + model->name : std::string(),
                    choice.backend, choice.reason));
}

int print_backends(const std::string& hardware_name, const std::string& model_path) {
  std::optional<proto::HardwareProfile> hardware;
  std::optional<rank::ModelConfig> model;
  if (!hardware_name.empty()) hardware = rank::load_hardware(hardware_name);
  if (!model_path.empty()) model = rank::load_model_config(model_path);
  print_matrix(hardware);
  print("\nChosen where no backend is named\n");
  if (hardware) {
    print_choice(*hardware, model);
  } else {
    for (const std::string& name : rank::hardware_catalogue()) print_choice(rank::load_hardware(name), model);
  }
  return kDone;
}

}  // namespace

void add_backends_command(CLI::App& root, Action& action) {
  struct Args {
    std::string hardware;
    std::string model_path;
  };
  CLI::App* command =
      root.add_subcommand("backends", "What the attention backends can do, and which is chosen");
  const auto args = std::make_shared<Args>();
  const auto flags = std::make_shared<FlagSet>(*command);
  const auto store = [](std::string& target) {
    return [&target](std::string_view flag, const std::string& value) {
      if (value.empty()) throw_user_error("{}: the value is empty", flag);
      target = value;
    };
  };
  flags->add_value("--hardware", "GPU", "only this GPU of the catalogue", store(args->hardware));
  flags->add_value("--model-path,--model", "MODEL", "for this model", store(args->model_path));
  command->callback([&action, args, flags] {
    action = [args, flags] {
      flags->read();
      return print_backends(args->hardware, args->model_path);
    };
  });
}

}  // namespace tpsim::launch
