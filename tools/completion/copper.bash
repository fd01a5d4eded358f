# Completion of copper for bash. The program itself tells what may come next (tools/copper/completion.hpp).
# shellcheck shell=bash
_copper() {
    local answer
    COMPREPLY=()
    mapfile -t answer < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case ${answer[0]-} in
        :files) compopt -o default ;;
        :directories) compopt -o dirnames ;;
        :command*)
            if declare -F _command_offset >/dev/null; then
                _command_offset $((${answer[0]#:command } + 1))
            else
                compopt -o default
            fi
            ;;
        *) COMPREPLY=("${answer[@]%%$'\t'*}") ;;
    esac
}
complete -F _copper copper
