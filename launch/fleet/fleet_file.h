// `--fleet fleet.yaml`: the launch lines of a fleet as people have them, with how many of each there are.
//
//   router: python3 -m sglang_router.launch_router --policy cache_aware
//   workers:
//     - {count: 4, hardware: h200-sxm, args: --model-path Qwen/Qwen3-32B --tp 8}
//     - name: small
//       count: 8
//       hardware: l40s
//       args: python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B-FP8 --tp 2
//
// `share: 3` beside `count`, where several models are served: that part of requests, of the sum of all
// shares. `autoscale: 1..4` beside `count`: servers of that group come and go. `prefill` and `decode` in
// place of `workers`: servers of a pair of roles. JSON is YAML, too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

// Servers that are alike.
struct ServerGroup {
  std::string key;          // "workers", "prefill" or "decode"
  std::string name;         // as reports have it: `name`, or "workers", "workers 2" …
  std::uint64_t line = 0;   // of the file
  std::uint32_t count = 1;  // that are up when the run begins
  std::uint32_t least = 0,
                most = 0;  // that there may be then (`autoscale: 1..4`); 0: they do not come and go
  double share = 0;        // of requests, to the shares of other groups; 0: none is said
  std::string hardware;
  std::vector<std::string> flags;  // of each one's launch line

  bool scales() const { return most > 0; }
  std::uint32_t slots() const { return scales() ? most : count; }
};

struct FleetFile {
  std::string path;
  std::uint64_t router_line = 0;  // 0: there is no router
  std::vector<std::string> router_flags;
  std::vector<ServerGroup> groups;  // in the order of the file

  // The most that there may be.
  std::uint64_t servers() const;
  bool has(std::string_view key) const;
};

// Throws UserError "PATH:LINE: …" for what is no such file, and for unknown keys.
FleetFile read_fleet_file(const std::string& path);
// The same of its text; `path` is for the sentences.
FleetFile parse_fleet(const std::string& text, const std::string& path);

}  // namespace tpsim::launch
