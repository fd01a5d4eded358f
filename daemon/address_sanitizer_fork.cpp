// libfuse forks to run fusermount3, and the child calls setenv(3) before, which allocates. malloc(3) of the C
// library can do so; that of Clang's address sanitizer before version 17 hangs if another thread was
// allocating. From version 17 on it does what follows by itself.
#include <pthread.h>

namespace __lsan {
void LockAllocator();
void UnlockAllocator();
}  // namespace __lsan

namespace __sanitizer {
void StackDepotLockAll();
void StackDepotUnlockAll();
}  // namespace __sanitizer

namespace {

void lock() {
    __lsan::LockAllocator();
    __sanitizer::StackDepotLockAll();
}

void unlock() {
    __sanitizer::StackDepotUnlockAll();
    __lsan::UnlockAllocator();
}

[[maybe_unused]] const int installed = ::pthread_atfork(lock, unlock, unlock);

}  // namespace
