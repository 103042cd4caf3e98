# Sourced by deploy/tour, deploy/operate-check, deploy/clients/run and deploy/contract/run, in the root of the repository, with $work a temporary folder.
#
# start_dev builds slotgate as $work/slotgate, runs "slotgate dev" on free ports with the arguments it gets, waits until it answers and
# exports what it prints: GW, KEY and SLOTGATE_CONFIG. The process is $dev; whoever sources this ends it with stop.
dev=''

start_dev() {
	go build -o "$work/slotgate" ./cmd/slotgate
	: >"$work/dev.out"
	"$work/slotgate" dev --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 "$@" >"$work/dev.out" 2>"$work/dev.err" &
	dev=$!
	for ((i = 0; i < 600; i++)); do
		if grep -q '^# Ctrl-C' "$work/dev.out"; then
			eval "$(grep -E '^export (GW|KEY|SLOTGATE_CONFIG)=' "$work/dev.out")"
			return
		fi
		kill -0 "$dev" 2>/dev/null || break
		sleep 0.1
	done
	echo "slotgate dev did not start:" >&2
	cat "$work/dev.out" "$work/dev.err" >&2
	exit 1
}

# stop ends the processes and waits for them; an empty or ended one is none.
stop() {
	local pid
	for pid in "$@"; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
}

# quietly NAME COMMAND… prints what the command printed only when it fails, since generators and installers talk a lot. It runs the command
# in the background, because in a condition bash would go on after an error inside.
quietly() {
	local name=$1
	shift
	(set -e; "$@") >"$work/$name.log" 2>&1 &
	if ! wait $!; then
		echo "$name failed:" >&2
		cat "$work/$name.log" >&2
		return 1
	fi
}
