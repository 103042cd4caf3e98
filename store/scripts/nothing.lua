-- Does nothing: in the frame of once.lua it looks for a record. Returns {0}.
return {0}
