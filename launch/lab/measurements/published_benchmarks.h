// What the public scripts of a benchmark set beside the columns of its rows, by the rules of
// published_benchmarks.json, which says where each comes from.
//
// A rule applies where its "when" holds: columns that are equal to a value, or "contains", "begins" (texts),
// "from", "before" (versions) or "least" (numbers); "not" and "any" of such. It adds its "flags" and what it
// "set"s, then those of "all" its inner rules and of the "first" one of them that applies. A value {"of":
// COLUMN} is a column's, with "plus" and "least".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::launch {

struct PublishedRow {
  std::string model, hardware, precision;  // hardware by tpsim's name; precision fp8, fp4 or empty: 16 bit
  std::string version;                     // of SGLang; empty: not said, taken for an old one
  std::uint64_t isl = 0, osl = 0;          // tokens
  std::uint64_t concurrency = 0;
  std::uint32_t tp_size = 1, ep_size = 1, dp_size = 1;  // dp_size: of attention
  // Another row of the file agrees in every column and is slower: two settings were run, of which the columns
  // name none.
  bool faster_twin = false;
};

struct PublishedPattern {
  std::vector<std::string> server_flags;  // of `tpsim run`, beside model, GPU, parallelism and release
  double range_ratio = 1;                 // of the lengths, shortest over longest
  std::uint64_t rounds = 10;              // prompts of each of the places in flight
  std::uint32_t ep_size = 1;              // as the server had it; a row may not say so
  double server_tokens = 1;               // that the server makes of the text of one of the client's tokens
  std::string front_end;                  // --front-end
  bool speculates = false;                // with the model's own next-token head
};

PublishedPattern published_pattern(const PublishedRow& row);

}  // namespace tpsim::launch
