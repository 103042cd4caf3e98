-- KEYS: 1 st, 2 w, 3 sch. ARGV: 1 doubles: epoch and turn that the schedule is computed of; then what st is to have: place, level, how many
-- turns, whose they are; 2 w; 3 sch, '' = there is none. Keeps a schedule, unless the pool is another meanwhile: returns 1, or else 0.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local epoch, turn, place, level, length, plan = unpack('<dddddd', ARGV[1])
local state = call('GET', KEYS[1])
if not state then return {0} end
local is, at = unpack('<dd', state, 81)
if is ~= epoch or at ~= turn then return {0} end
call('SETRANGE', KEYS[1], '16', pack('<dd', place, level))
call('SETRANGE', KEYS[1], '80', pack('<dddd', epoch + 1, 0, length, plan))
if ARGV[2] == '' then call('DEL', KEYS[2]) else call('SET', KEYS[2], ARGV[2]) end
if ARGV[3] == '' then call('DEL', KEYS[3]) else call('SET', KEYS[3], ARGV[3]) end
return {1}
