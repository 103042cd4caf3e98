-- UNLINK if the stored bytes are still those that the gateway has read.
-- ARGV: 1 the expected stored bytes. Returns {1} removed, {0} changed meanwhile.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0} end
redis.call('UNLINK', KEYS[1])
return {1}
