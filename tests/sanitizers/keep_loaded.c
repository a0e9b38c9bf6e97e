/* A dlclose that unloads nothing, preloaded under AddressSanitizer (test preset asan).
 *
 * LeakSanitizer looks for pointers at the end of the process only, when the data of an unloaded
 * library is gone: whatever the library kept in its own globals is then reported as leaked, from an
 * unknown module. Mesa's lavapipe keeps 128 bytes so on processors of AMD (the masks of their L3
 * caches). Blocks that a plugin lost are reported as before, and with the plugin's own symbols. */

__attribute__((visibility("default"))) int dlclose(void* handle) {
  (void)handle;
  return 0;
}
