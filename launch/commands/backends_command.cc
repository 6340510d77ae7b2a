// `tpsim backends`: SGLang's two support matrices, and which backend is chosen, which others can run and what
// forbids the rest, from the list that decides in every command.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/selection/registry.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/terminal.h"
#include "launch/commands/commands.h"
#include "launch/deployment/attention.h"
#include "launch/flags/server_args.h"
#include "proto/base/error.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {

namespace {

struct BackendsArgs {
  ServerArgs server;  // --hardware, --model-path, --page-size and --kv-cache-dtype of it
  bool json = false;
};

// What is said about one device and model.
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

constexpr const char* kBackendFlag = "--attention-backend";

// The others that `prefill` can be paired with.
std::vector<std::string> decode_backends(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                         const rank::ModelConfig& model, const std::string& prefill) {
  std::vector<std::string> names;
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    const std::string decode(backend->row.name);
    if (judge_pair(args, {prefill, decode}, kBackendFlag, hardware, model).obstacle.empty())
      names.push_back(decode);
  }
  return names;
}

// `args`: --kv-cache-dtype and --page-size.
BackendsReport report_backends(const ServerArgs& args, const proto::HardwareProfile& hardware,
                               const rank::ModelConfig& model) {
  BackendsReport report;
  report.hardware = hardware.name();
  report.model = model.name;
  try {
    const attention::AutomaticChoice choice = attention::choose_backend(selection_of(hardware, model));
    report.chosen = choice.backend;
    report.reason = choice.reason;
    AttentionChoice resolved = choose_attention(args, nullptr, hardware, model);
    resolved.notes.erase(resolved.notes.begin());  // the choice itself
    report.notes = std::move(resolved.notes);
    report.notes.insert(report.notes.end(), resolved.warnings.begin(), resolved.warnings.end());
  } catch (const UserError& error) {
    if (report.chosen.empty())
      report.reason = error.what();
    else
      report.notes.emplace_back(error.what());
  }
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    const std::string name(backend->row.name);
    const PairVerdict verdict = judge_pair(args, {name, name}, kBackendFlag, hardware, model);
    BackendsReport::Runs runs{.backend = name,
                              .page_size = verdict.page_size,
                              .kv_cache_dtype = std::string(to_string(verdict.kv_format))};
    if (!verdict.obstacle.empty() && backend->row.prefill_only) {
      runs.prefill_only = true;
      runs.decode = decode_backends(args, hardware, model, name);
    }
    if (verdict.obstacle.empty() || !runs.decode.empty())
      report.can_run.push_back(std::move(runs));
    else
      report.cannot.push_back({name, verdict.obstacle});
  }
  std::stable_partition(report.can_run.begin(), report.can_run.end(),
                        [&](const auto& runs) { return runs.backend == report.chosen; });
  return report;
}

// What is chosen on a device for models with MHA and with MLA, whatever else they need.
struct DefaultBackend {
  std::string hardware;
  bool mla = false;
  std::string backend;  // empty: nothing runs
  std::string reason;
};
DefaultBackend default_backend(const proto::HardwareProfile& hardware, bool mla) {
  DefaultBackend choice{.hardware = hardware.name(), .mla = mla, .backend = "", .reason = ""};
  try {
    attention::AutomaticChoice found =
        attention::choose_backend({.generation = generation_of(hardware), .mla = mla});
    choice.backend = std::move(found.backend);
    choice.reason = std::move(found.reason);
  } catch (const UserError& error) {
    choice.reason = error.what();
  }
  return choice;
}

// The machine-readable forms.
nlohmann::ordered_json as_json(const attention::SupportMatrix& matrix) {
  nlohmann::ordered_json json = {{"columns", matrix.columns}, {"rows", nlohmann::ordered_json::array()}};
  for (const attention::SupportMatrix::Line& line : matrix.lines)
    json["rows"].push_back({{"backend", line.backend}, {"cells", line.cells}});
  return json;
}

nlohmann::ordered_json as_json(const BackendsReport& report) {
  nlohmann::ordered_json json = {{"hardware", report.hardware},
                                 {"model", report.model},
                                 {"chosen", report.chosen},
                                 {"reason", report.reason},
                                 {"notes", report.notes},
                                 {"can_run", nlohmann::ordered_json::array()},
                                 {"cannot_run", nlohmann::ordered_json::array()}};
  for (const BackendsReport::Runs& runs : report.can_run) {
    nlohmann::ordered_json entry = {{"backend", runs.backend}};
    if (runs.prefill_only) {
      entry["decode_backends"] = runs.decode;
    } else {
      entry["page_size"] = runs.page_size;
      entry["kv_cache_dtype"] = runs.kv_cache_dtype;
    }
    entry["prefill_only"] = runs.prefill_only;
    json["can_run"].push_back(std::move(entry));
  }
  for (const BackendsReport::Cannot& cannot : report.cannot)
    json["cannot_run"].push_back({{"backend", cannot.backend}, {"reason", cannot.reason}});
  return json;
}

nlohmann::ordered_json as_json(const DefaultBackend& choice) {
  return {{"hardware", choice.hardware},
          {"form", choice.mla ? "MLA" : "MHA"},
          {"backend", choice.backend},
          {"reason", choice.reason}};
}

// Columns that a cell takes on a terminal: a sign such as ✅ takes two, its variation selector none.
std::size_t width_of(const std::string& cell) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < cell.size();) {
    const auto lead = static_cast<unsigned char>(cell[i]);
    const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (cell.compare(i, bytes, "\uFE0F") != 0) width += bytes > 1 ? 2 : 1;
    i += bytes;
  }
  return width;
}

// In Markdown, as the documentation has it; columns are aligned for a terminal.
void print_matrix(const attention::SupportMatrix& matrix) {
  std::vector<std::size_t> widths(matrix.columns.size(), 0);
  const bool aligned = terminal_columns(STDOUT_FILENO) > 0;
  const auto widen = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width_of(cells[i]));
  };
  if (aligned) {
    widen(matrix.columns);
    for (const auto& line : matrix.lines) widen(line.cells);
  }
  const auto print_cells = [&](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += " " + cells[i] +
              std::string(std::max(widths[i], width_of(cells[i])) - width_of(cells[i]), ' ') + " |";
    print(text + "\n");
  };
  print(fmt::format("{}\n", matrix.title));
  print_cells(matrix.columns);
  std::string rule = "|";
  for (const std::size_t width : widths) rule += std::string(aligned ? width + 2 : 3, '-') + "|";
  print(rule + "\n");
  for (const auto& line : matrix.lines) print_cells(line.cells);
}

void print_report(const BackendsReport& report) {
  print(fmt::format("{} on {}\n", report.model, report.hardware));
  if (report.chosen.empty())
    print(fmt::format("  Chosen: none. {}\n", report.reason));
  else
    print(fmt::format("  Chosen: {} ({})\n", report.chosen, report.reason));
  for (const std::string& note : report.notes) print(fmt::format("          {}\n", note));
  if (!report.can_run.empty()) print("  Can run:\n");
  for (const BackendsReport::Runs& runs : report.can_run) {
    if (runs.prefill_only)
      print(fmt::format("    {:<22} for prefill, with --decode-attention-backend {}\n", runs.backend,
                        fmt::join(runs.decode, ", ")));
    else
      print(fmt::format("    {:<22} page size {}, KV cache in {}\n", runs.backend, runs.page_size,
                        runs.kv_cache_dtype));
  }
  if (!report.cannot.empty()) print("  Cannot:\n");
  for (const BackendsReport::Cannot& cannot : report.cannot)
    print(fmt::format("    {:<22} {}\n", cannot.backend, cannot.reason));
  print("\n");
}

int print_json(const std::vector<BackendsReport>& reports, const std::vector<DefaultBackend>& defaults) {
  nlohmann::ordered_json json = {{"mha", as_json(attention::mha_matrix())},
                                 {"mla", as_json(attention::mla_matrix())}};
  for (const BackendsReport& report : reports) json["deployments"].push_back(as_json(report));
  for (const DefaultBackend& choice : defaults) json["defaults"].push_back(as_json(choice));
  print(json.dump(2) + "\n");
  return kDone;
}

int print_backends(const BackendsArgs& args) {
  std::vector<std::string> names = {args.server.hardware};
  if (args.server.hardware.empty()) names = rank::hardware_catalogue();
  std::vector<BackendsReport> reports;
  std::vector<DefaultBackend> defaults;
  std::optional<rank::ModelConfig> model;
  if (!args.server.model_path.empty()) model = rank::load_model_config(args.server.model_path);
  for (const std::string& name : names) {
    const proto::HardwareProfile hardware = rank::load_hardware(name);
    if (model)
      reports.push_back(report_backends(args.server, hardware, *model));
    else
      defaults.insert(defaults.end(), {default_backend(hardware, false), default_backend(hardware, true)});
  }
  if (args.json) return print_json(reports, defaults);
  for (const BackendsReport& report : reports) print_report(report);
  print_matrix(attention::mha_matrix());
  print("\n");
  print_matrix(attention::mla_matrix());
  print(
      "\nPages: what kernels read natively; MHA kernels take pages of other sizes apart into tokens, but "
      "for\n"
      "those with sizes of their own. nsa (dsa) is for models with DeepSeek's sparse attention, dsv4 for\n"
      "DeepSeek V4. Two backends make\na hybrid pair: --prefill-attention-backend A "
      "--decode-attention-backend B, or A+B in\n"
      "`tpsim compare --attention-backends`.\n");
  if (!defaults.empty()) print("\nChosen where no backend is named\n");
  for (const DefaultBackend& choice : defaults)
    print(fmt::format("  {:<13} {} {} ({})\n", choice.hardware, choice.mla ? "MLA" : "MHA",
                      choice.backend.empty() ? "none" : choice.backend, choice.reason));
  if (!model) print("\nWith --model-path: which others can run there, and what forbids the rest.\n");
  return kDone;
}

}  // namespace

void add_backends_command(CLI::App& command, rank::MpiSession&, Action& action) {
  add_flag_command<BackendsArgs>(
      command, action,
      [](FlagSet& flags, BackendsArgs& args) {
        declare_backends_flags(flags, args.server);
        flags.add_switch("--json", "prints JSON", args.json);
      },
      [](BackendsArgs& args, FlagSet&) { return print_backends(args); });
}

}  // namespace tpsim::launch
