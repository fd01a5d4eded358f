# Completion of copper for fish. The program itself tells what may come next (tools/copper/completion.hpp).
function __copper_complete
    set -l words (commandline --tokenize --current-process --cut-at-cursor)
    set -l current (commandline --current-token --cut-at-cursor | string collect --allow-empty)
    set -l answer ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    # --option=FILE is one word
    set -l option (string match --regex -- '^-.*?=' "$current")
    set -l value (string replace --regex -- '^-.*?=' '' "$current")
    switch "$answer[1]"
        case ':files'
            string replace --regex -- '^' "$option" (__fish_complete_path "$value")
        case ':directories'
            string replace --regex -- '^' "$option" (__fish_complete_directories "$value" '')
        case ':command*'
            set -l command $words[(math (string replace ':command ' '' $answer[1]) + 2)..-1]
            complete --do-complete (string join ' ' -- (string escape -- $command) "$current")
        case '*'
            printf '%s\n' $answer
    end
end
complete --command copper --no-files --arguments '(__copper_complete)'
