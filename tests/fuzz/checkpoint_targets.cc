// Files of --checkpoint, and the state in them.
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "launch/simulation/checkpoint.h"
#include "proto/base/archive.h"
#include "proto/base/error.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Whatever the bytes are, a file is refused by a sentence or gives back what was put in.
void file(std::string_view bytes) {
  try {
    launch::checkpoint_body(bytes, "fuzzed");
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("--resume fuzzed: "), "a complaint names the file");
  }
  ByteHash hash;
  hash.add(bytes);
  const std::string sealed = launch::checkpoint_head() + std::string(bytes) + launch::checkpoint_tail(hash);
  check(launch::checkpoint_body(sealed, "fuzzed") == bytes, "a file gives back what was put in");
}

struct Part {
  std::string name;
  std::vector<std::pair<double, std::uint64_t>> plain;
  bool flag = false;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(name, plain, flag);
  }
};

// Of everything that a state may be made of.
struct State {
  std::vector<Part> parts;
  std::vector<bool> bits;
  std::vector<std::uint32_t> numbers;
  std::deque<Part> queue;
  std::optional<Part> maybe;
  std::map<std::string, std::string> names;
  std::unordered_map<std::uint32_t, Part> table;
  std::set<std::uint64_t> sorted;
  std::unordered_set<std::uint64_t> set;
  std::array<double, 2> two = {};
  std::vector<std::unique_ptr<Part>> owned;
  std::vector<Part*> named;
  Part* one = nullptr;
  std::vector<std::shared_ptr<const Part>> shared;
  ZeroedArray<std::uint16_t> zeros;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(parts, bits, numbers, queue, maybe, names, table, sorted, set, two, owned, named, one, shared);
    archive.array(zeros, 5000);
  }
};

// Whatever the bytes are, they end too early, or what they say can be written and read again.
void state(std::string_view bytes) {
  State once;
  try {
    StateReader reader(bytes);
    reader(once);
  } catch (const std::length_error&) {
    return;
  }
  StateWriter writer;
  writer(once);
  State again;
  StateReader reader(writer.bytes());
  reader(again);
  check(reader.at_end(), "all that was written is read");
  check(again.parts.size() == once.parts.size() && again.bits == once.bits && again.numbers == once.numbers &&
            again.names == once.names && again.sorted == once.sorted && again.set == once.set &&
            again.named.size() == once.named.size() && again.shared.size() == once.shared.size(),
        "what was written is read");
  for (std::size_t i = 0; i < once.named.size(); ++i)
    check((again.named[i] == nullptr) == (once.named[i] == nullptr) &&
              (once.named[i] == nullptr || again.named[i]->name == once.named[i]->name),
          "pointers name what they named");
}

}  // namespace

std::span<const FuzzTarget> checkpoint_targets() {
  static constexpr std::array<FuzzTarget, 2> kTargets = {{{"checkpoint", file}, {"checkpoint_state", state}}};
  return kTargets;
}

}  // namespace tpsim::fuzz
