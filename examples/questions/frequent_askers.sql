-- Who asked more than three times? A name is in the tables of leads: join applicant_leads or appraisal_leads by person.
select
    person,
    leads,
    days,
    branches
from mart_people
where leads > 3
order by leads desc, days desc, person
