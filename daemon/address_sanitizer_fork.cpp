// libfuse forks to run fusermount3. Before that, the child calls setenv(3), which allocates. With the C
// library it may; with Clang's address sanitizer it hangs if another thread was allocating during the fork.
// So these functions take the allocator's locks before a fork. From version 17 on, the sanitizer takes them
// itself.
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
