-- UNLINK, perhaps only if the stored bytes are still those that the gateway has read.
-- ARGV: 1 the expected stored bytes; without it any value of any type. Returns {1} removed, {0} absent or changed meanwhile.
if #ARGV > 0 and redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0} end
return {redis.call('UNLINK', KEYS[1])}
