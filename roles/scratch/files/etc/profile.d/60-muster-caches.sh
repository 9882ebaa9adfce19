# Managed by Muster: changes here are lost.
# Without it PyTorch compiles into /tmp/torchinductor_LOGIN and loads code from there, whoever made that
# folder first. All other caches are in the home already.
if [ -n "${HOME-}" ]; then
    export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$HOME/.cache/torchinductor}"
fi
