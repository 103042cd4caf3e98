-- Deletes a definition with all that is in its hash. KEYS: 1 its hash, see load.lua; 2... what ends with it. ARGV: 1 'some' or the version that
-- must be there.
-- Returns {0} if there is none, {2} if there is another version, {1} when it is gone.
local version = redis.call('HGET', KEYS[1], 'v')
if not version then return {0} end
if ARGV[1] ~= 'some' and version ~= ARGV[1] then return {2} end
redis.call('UNLINK', unpack(KEYS))
return {1}
