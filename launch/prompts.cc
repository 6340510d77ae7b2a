#include "launch/prompts.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

std::vector<std::uint32_t> parse_prompt_ids(std::string_view flag, const std::string& text) {
  std::vector<std::uint32_t> ids;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    ids.push_back(static_cast<std::uint32_t>(
        parse_count(flag, text.substr(start, comma - start), 0, std::numeric_limits<std::uint32_t>::max())));
    start = comma + 1;
  }
  return ids;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  return read_prompts(scheduler::open_file(file), file.string());
}

std::vector<Prompt> read_prompts(std::unique_ptr<scheduler::ByteSource> source, const std::string& name) {
  constexpr std::array<std::string_view, 1> kKeys = {"prompt_ids"};
  scheduler::TraceInput input(scheduler::decode(std::move(source), name), name);
  scheduler::JsonRecord record(kKeys);
  std::vector<Prompt> prompts;
  std::string_view line;
  while (input.next_filled_line(line)) {
    const scheduler::Place place = input.place();
    record.parse(line, place);
    if (!record.unknown_key().empty())
      place.fail("key {} is unknown; a line is {{\"prompt_ids\": [1, 2, 3]}}",
                 in_quotes(record.unknown_key()));
    const scheduler::JsonField& field = record.field(0);
    if (field.kind != scheduler::JsonKind::kUnsigneds || field.values.empty())
      place.fail("\"prompt_ids\" is {}; a list of at least one token id like [1, 2, 3] is needed",
                 field.kind == scheduler::JsonKind::kUnsigneds ? "an empty list" : record.found(0));
    Prompt prompt;
    prompt.where = fmt::format("{}:{}", place.name, place.line);
    for (const std::uint64_t id : field.values) {
      if (id > std::numeric_limits<std::uint32_t>::max()) place.fail("{} is no token id", id);
      prompt.ids.push_back(static_cast<std::uint32_t>(id));
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) throw_user_error("{}: has no prompts, a line is {{\"prompt_ids\": [1, 2, 3]}}", name);
  return prompts;
}

void check_prompts(const std::vector<Prompt>& prompts, std::uint32_t vocab_size) {
  for (const Prompt& prompt : prompts) {
    for (const std::uint32_t id : prompt.ids) {
      if (id >= vocab_size)
        throw_user_error("{}: token id {} is beyond the vocabulary of {} entries", prompt.where, id,
                         vocab_size);
    }
  }
}

}  // namespace tpsim::launch
