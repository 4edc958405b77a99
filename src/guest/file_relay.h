#pragma once
// The guest's side of the file wire: mounts each share with /dev/fuse and carries FUSE messages
// between the kernel and the port. It understands nothing of them but their length;
// `files/transport.h` is the framing on the port.
//
//   ASSIGN(auto relay, FileRelay::start(std::move(port), root, request.shares));
//   // the mounts answer as long as the relay lives
//   relay->stop();  // or its destructor: unmounts, ends the threads
//
// Call it with the rights to mount, in the mount namespace that shall see the shares. It starts
// three threads and blocks no signals of the caller's own; every thread of it blocks all signals.

#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "channel/messages.h"
#include "guest/root_dir.h"

namespace sandbox::guest {

class FileRelay {
 public:
  // `port` is read and written by the relay alone from now on; it is made non-blocking. The paths
  // of the shares are below `root`; what is missing of them is made. They are mounted in the order
  // given, so an outer one goes before one inside it, whose mount point is then a directory or file
  // of the outer share.
  static Result<std::unique_ptr<FileRelay>> start(Fd port, const RootDir& root,
                                                  const std::vector<channel::Share>& shares);
  ~FileRelay();
  FileRelay(const FileRelay&) = delete;
  FileRelay& operator=(const FileRelay&) = delete;

  // Unmounts (lazily: what is still open keeps its errors), ends the threads. Idempotent.
  void stop();
  // The port was closed or broke its protocol: every mount answers ENOTCONN from then on.
  [[nodiscard]] bool broken() const;

 private:
  class Impl;
  explicit FileRelay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sandbox::guest
