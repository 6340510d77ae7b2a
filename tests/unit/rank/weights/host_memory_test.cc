#include "rank/weights/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/unit/rank/weights/expect_user_error.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::rank {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// A host made of files.
class HostMemory : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    testing::write_file(path, text);
  }
  std::uint64_t available() const { return host_memory_available((folder_ / "").string()); }

  testing::TemporaryFolder folder_;
};

TEST_F(HostMemory, WithoutAWordOfTheHost) { EXPECT_EQ(available(), kUnlimited); }

TEST_F(HostMemory, TheKernelsEstimate) {
  write("proc/meminfo",
        "MemTotal:       100 kB\nMemFree:        10 kB\nMemAvailable:        60 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(available(), 60U * 1024);
  write("proc/meminfo", "MemAvailable:\nnothing\n\n");
  EXPECT_EQ(available(), kUnlimited);
}

TEST_F(HostMemory, ControlGroupsVersion2) {
  write("proc/meminfo", "MemAvailable: 1000 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "5\n");
  EXPECT_EQ(available(), 1000U * 1024);
  // The group above has the limit.
  write("sys/fs/cgroup/a/memory.max", "100000\n");
  write("sys/fs/cgroup/a/memory.current", "70000\n");
  EXPECT_EQ(available(), 30000U);
  // Page cache is given back.
  write("sys/fs/cgroup/a/memory.stat", "anon 40000\nfile 30000\ninactive_file 15000\nactive_file 5000\n");
  EXPECT_EQ(available(), 50000U);
  write("sys/fs/cgroup/memory.max", "40000\n");
  write("sys/fs/cgroup/memory.current", "30000\n");
  EXPECT_EQ(available(), 10000U);
  // More used than allowed.
  write("sys/fs/cgroup/memory.current", "50000\n");
  EXPECT_EQ(available(), 0U);
}

TEST_F(HostMemory, ControlGroupsVersion1) {
  write("proc/meminfo", "MemAvailable: 1000 kB\n");
  // The path is the host's; in the container only its own group is to be seen, as the root.
  write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:hugetlb,memory:/docker/0123\n0::/\nnonsense\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "100000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "90000\n");
  write("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\ntotal_inactive_file 20000\ntotal_active_file 10000\n");
  EXPECT_EQ(available(), 40000U);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 1000U * 1024);
}

TEST_F(HostMemory, ThisHost) {
  EXPECT_GT(host_memory_available(), 0U);
  EXPECT_LT(host_memory_available(), std::uint64_t{1} << 50);
}

TEST_F(HostMemory, TooMuchIsRefused) {
  EXPECT_NO_THROW(check_host_memory(100, "the KV cache", 100));
  EXPECT_NO_THROW(check_host_memory(1, "the KV cache"));
  testing::expect_user_error([] { check_host_memory(std::uint64_t{3} << 30, "the KV cache", 1 << 30); },
                             {"the KV cache needs 3.00 GiB", "3221225472 bytes", "1.00 GiB",
                              "1073741824 bytes", "--max-total-tokens", "more hosts"});
  EXPECT_THROW(check_host_memory(kUnlimited, "all"), UserError);
}

}  // namespace
}  // namespace tpsim::rank
