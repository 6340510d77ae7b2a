// The prompts of numeric execution, token ids on the command line or in a file, and what it makes of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/records.h"
#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

struct Prompt {
  std::vector<std::uint32_t> ids;  // without those of images
  std::string where;               // for errors: the flag, or file and line
  std::vector<scheduler::ImageInput> images = {};
};

// "1,2,3". Throws UserError naming `flag`.
std::vector<std::uint32_t> parse_prompt_ids(std::string_view flag, const std::string& text);

// "ID:WIDTHxHEIGHT,ID:WIDTHxHEIGHT@POSITION…": images by a number that equal ones share, and how many tokens
// of the prompt stand in front of each (0 where it is not said; ascending). Throws UserError naming `flag`.
std::vector<scheduler::ImageInput> parse_images(std::string_view flag, const std::string& text);

// JSONL, gzip accepted: {"prompt_ids": [1, 2, 3]} a line, and with images scheduler/workload/images.h;
// empty lines are skipped. Throws UserError naming file and line.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
// The same of any bytes; `name` is what errors call them.
std::vector<Prompt> read_prompts(std::unique_ptr<scheduler::ByteSource> source, const std::string& name);

// Throws UserError for an id that is not below `vocab_size`.
void check_prompts(const std::vector<Prompt>& prompts, std::uint32_t vocab_size);

struct Output {
  bool completed = false;
  std::uint32_t cached_tokens = 0;
  std::uint32_t cached_host = 0;  // of them, loaded from host memory
  std::vector<std::uint32_t> token_ids;
  std::vector<float> prompt_logits;  // [vocabulary]; empty where not asked for
};

// Keeps the outputs by their position in the workload.
class Outputs : public scheduler::NoRecords {
 public:
  explicit Outputs(std::size_t prompts) : outputs_(prompts) {}
  void on_request(const scheduler::RequestRecord& record) override;

  const std::vector<Output>& all() const { return outputs_; }

 private:
  std::vector<Output> outputs_;
};

scheduler::WorkloadRequest request_of(const Prompt& prompt, std::uint32_t max_new_tokens,
                                      const scheduler::SamplingParams& sampling);

}  // namespace tpsim::launch
