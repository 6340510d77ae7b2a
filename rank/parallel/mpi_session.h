// The life of MPI in this process, and the process group of a deployment.
//
// A plain `tpsim` is one process and never touches MPI (a singleton MPI_Init costs 0.35 s and a helper
// process); under mpirun, MPI_COMM_WORLD is what mpirun started.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::rank {

// Whether mpirun, srun or the like started this process.
bool started_by_launcher();

// The processes that stand in for the ranks of one deployment.
struct ProcessGroup {
  MPI_Comm comm = MPI_COMM_NULL;  // null where the group is this process alone and MPI is not running
  std::uint32_t process = 0;      // of this process in the group; 0 schedules
  std::uint32_t num_processes = 1;
  std::uint32_t tp_size = 1;  // ranks, those of all pipeline stages
  std::uint32_t deployment = 0;
  std::vector<pid_t> pids;        // of the group's processes; 0 for those on other hosts
  std::uint32_t job_on_host = 1;  // processes of the whole job on this host, which share its cores

  std::uint32_t ranks_per_process() const { return tp_size / num_processes; }
  std::uint32_t first_rank(std::uint32_t of_process) const { return of_process * ranks_per_process(); }
  // Whether process `of_process` is on this host and does not exist any more.
  bool is_dead(std::uint32_t of_process) const;
  // "rank 3 (process 3)", "ranks 6-7 (process 3)": how errors name a process.
  std::string name_of(std::uint32_t of_process) const;
};

class MpiSession {
 public:
  // Starts MPI where a launcher (mpirun, srun) started this process. At most one per process, on the main
  // thread, before any other thread.
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  // Ends MPI; every process must come here. After mark_lost(): aborts the job with its exit status instead,
  // because a process that is gone never will.
  ~MpiSession();

  bool active() const { return active_; }
  std::uint32_t process() const { return process_; }  // in MPI_COMM_WORLD
  std::uint32_t num_processes() const { return num_processes_; }

  // Splits MPI_COMM_WORLD into `num_deployments` groups of neighbouring processes; returns this process's.
  // Collective. Throws UserError, in every process, where their number does not divide `num_ranks` (of
  // `pp_size` stages together): print it where process() is 0 and return 2 from main everywhere.
  ProcessGroup process_group(std::uint32_t num_ranks, std::uint32_t num_deployments = 1,
                             std::uint32_t pp_size = 1);

  // The schedulers of all groups: their processes 0, as a group of their own; to other processes
  // a null communicator. Collective. REQUIRES: `group` is of the last process_group().
  ProcessGroup leaders(const ProcessGroup& group) const;

  // A process is lost, or cannot be reached: see the destructor.
  void mark_lost(int exit_status = 3) {
    lost_ = true;
    lost_status_ = exit_status;
  }
  bool lost() const { return lost_; }
  // Ends all processes now, with this exit status for mpirun.
  [[noreturn]] void abort(int exit_status);

 private:
  bool active_ = false;
  bool lost_ = false;
  int lost_status_ = 3;
  std::uint32_t process_ = 0;
  std::uint32_t num_processes_ = 1;
};

}  // namespace tpsim::rank
