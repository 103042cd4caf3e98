-- KEYS: 3 w, 4 ring. Reads the weights and credits of all that are eligible, in the order of the ring, and finds out who is excluded. O(n).
local leases = 5
local text = call('GET', KEYS[3]) or ''
local size = #text / 16
local form = '<' .. string.rep('dd', size)
local numbers = {unpack(form, text)} -- weight, credit, weight, credit, ...
local skip, skipped = {}, 0
if out then
  for m in pairs(out) do
    local rank = call('ZRANK', KEYS[4], m)
    if rank then
      skip[rank + 1] = true
      skipped = skipped + 1
    end
  end
end
local nobody = skipped == size and -2 or -3
local function at_place(i) return call('ZRANGE', KEYS[4], i - 1, i - 1)[1] end
if bound then
  fits = function(m) return numbers[2 * call('ZRANK', KEYS[4], m) + 1] > 0 end
end
