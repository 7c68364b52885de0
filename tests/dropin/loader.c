/* loader PLUGIN: opens the plugin, local as an extension of Python is, and runs it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    union {
        void *address;
        int (*run)(void);
    } symbol = {.address = plugin ? dlsym(plugin, "plugin_run") : NULL};
    if (!symbol.address)
        fprintf(stderr, "%s\n", plugin ? "no plugin_run" : dlerror());
    return symbol.address ? symbol.run() : 1;
}
