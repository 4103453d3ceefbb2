function slurm_job_submit(desc, parts, uid)
  if desc.comment == "refuse" then
    slurm.log_user("not today")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(desc, job, parts, uid)
  return slurm.SUCCESS
end
